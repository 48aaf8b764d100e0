#include "pull_plan.h"

#include <algorithm>

#include "towline/base/text.h"
#include "towline/transfer/plan.h"

namespace towline::cli {
namespace {

/// One candidate, and what pulling from it would be.
struct Candidate {
  control::SourceRef ref;
  std::string transport;
  size_t tensors = 0;
  size_t digests = 0;
  transfer::TransferPlan plan;
  std::string obstacle;  ///< why it would be passed over; empty: it would not
};

Candidate candidate_of(const control::SourceRef& ref, const control::WorkerEntry& entry, transfer::Session& session) {
  const tensor::Manifest& manifest = entry.worker.manifest;
  Candidate candidate{.ref = ref, .transport = entry.worker.transport, .tensors = manifest.size(), .obstacle = {}};
  candidate.digests = static_cast<size_t>(
      std::count_if(manifest.begin(), manifest.end(), [](const auto& desc) { return desc.digest.has_value(); }));
  candidate.plan = transfer::plan_manifest(manifest, transfer::limits_for(session.transport().caps()));
  if (candidate.transport != session.options().transport)
    candidate.obstacle = fmt::format("its transport is not {}", session.options().transport);
  else if (manifest.empty())
    candidate.obstacle = "it serves no tensors";
  return candidate;
}

Document document_of(const Candidate& candidate) {
  Document row;
  row.set("worker_id", candidate.ref.worker_id).set("source_id", candidate.ref.source_id);
  row.set("transport", candidate.transport).set("tensor_count", uint64_t{candidate.tensors});
  row.set("bytes", candidate.plan.bytes).set("digest_count", uint64_t{candidate.digests});
  row.set("read_count", uint64_t{candidate.plan.pieces.size()});
  row.set("post_count", uint64_t{candidate.plan.posts.size()});
  row.set("obstacle", candidate.obstacle.empty() ? std::nullopt : std::optional(candidate.obstacle));
  return row;
}

std::string text_of(const std::vector<Candidate>& candidates, const App& app, const PullPlanWish& wish) {
  using Align = Table::Align;
  Table table({{"worker"},
               {"transport"},
               {"tensors", Align::kRight},
               {"digests", Align::kRight},
               {"bytes", Align::kRight},
               {"reads", Align::kRight},
               {"posts", Align::kRight},
               {"obstacle"}});
  for (const Candidate& one : candidates)
    table.add({one.ref.worker_id, one.transport, std::to_string(one.tensors), std::to_string(one.digests),
               to_string(one.plan.bytes), std::to_string(one.plan.pieces.size()), std::to_string(one.plan.posts.size()),
               one.obstacle.empty() ? "-" : one.obstacle});
  std::string text = candidates.empty() ? "no replica serves it now\n" : table.text();
  text += fmt::format("at most {} in flight; digests are {}\n", to_string(app.options().bytes("window")),
                      app.options().flag("verify") ? "verified" : "not looked at");
  if (wish.or_load) text += fmt::format("else from disk: {}\n", escape_control(*wish.or_load));
  return text;
}

}  // namespace

Result<void> print_pull_plan(App& app, control::Metadata& metadata, const ReplicaFlags& flags,
                             const PullPlanWish& wish) {
  const auto session = TOWLINE_TRY(app.open_session());
  const Deadline deadline = app.deadline();
  transfer::PeerQuery query{.model_name = flags.model, .rank = flags.rank, .worker_id = wish.from_worker_id};
  Result<std::vector<control::SourceRef>> refs = transfer::list_candidates(metadata, query, deadline);
  if (!refs.has_value() && !(wish.or_load && refs.error().code == Code::kNotFound)) return std::move(refs).error();
  std::vector<Candidate> candidates;
  std::vector<Document> rows;
  if (refs.has_value())
    for (const control::SourceRef& ref : *refs) {
      const Result<control::WorkerEntry> entry = metadata.get(ref.source_id, ref.worker_id, deadline);
      candidates.push_back(entry.has_value() ? candidate_of(ref, *entry, *session)
                                             : Candidate{.ref = ref, .obstacle = entry.error().message});
      rows.push_back(document_of(candidates.back()));
    }
  Document document("towline.pull.plan/1");
  document.set("model", flags.model).set("rank", flags.rank.value()).set("candidates", rows);
  document.set("window_bytes", app.options().bytes("window")).set("verify", app.options().flag("verify"));
  document.set("or_load", wish.or_load);
  return app.print(document, text_of(candidates, app, wish));
}

}  // namespace towline::cli
