#include <map>

#include "app.h"
#include "replica.h"
#include "towline/loader/checkpoint_verify.h"
#include "towline/transfer/layout.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {{"checkpoint", "a .safetensors file or a folder of shards"}};
constexpr FlagSpec kFlags[] = {
    {"model", "NAME", "name under which it is served (default: the checkpoint's base name)"},
    {"worker", "WORKER_ID", "check this worker (default: every ready one)", true},
    {.name = "rank",
     .placeholder = "N",
     .help = "rank of the shard (default: 0)",
     .kind = OptionKind::kCount,
     .most = kRankMax},
};
constexpr std::string_view kSettings[] = {"server", "rpc_deadline", "deadline", "transport", "window", "load_mode"};

struct Mismatch {
  std::string tensor;
  std::string what;
  std::string expected;
  std::string found;
};

struct WorkerCheck {
  std::string worker_id;
  size_t tensors = 0;
  size_t verified = 0;
  Bytes bytes;
  Nanoseconds elapsed{};
  std::vector<Mismatch> mismatches;
};

std::string text_of(const std::optional<tensor::Shape>& shape) { return shape ? tensor::to_string(*shape) : "none"; }
std::string text_of(const std::optional<tensor::Digest>& digest) {
  return digest ? tensor::to_string(*digest) : "none";
}

/// What of one tensor is not as the file has it; empty when all is.
std::optional<Mismatch> difference(const tensor::TensorDesc& file, const tensor::TensorDesc& found) {
  if (file.dtype != found.dtype) return Mismatch{file.name, "dtype", file.dtype, found.dtype};
  if (file.bytes != found.bytes)
    return Mismatch{file.name, "bytes", fmt::format("{}", file.bytes), fmt::format("{}", found.bytes)};
  if (found.shape && file.shape != found.shape)
    return Mismatch{file.name, "shape", text_of(file.shape), text_of(found.shape)};
  if (file.digest != found.digest) return Mismatch{file.name, "digest", text_of(file.digest), text_of(found.digest)};
  return std::nullopt;
}

void compare(const tensor::Manifest& file, const tensor::Manifest& found, WorkerCheck& check) {
  std::map<std::string_view, const tensor::TensorDesc*> by_name;
  for (const tensor::TensorDesc& desc : found) by_name.emplace(desc.name, &desc);
  for (const tensor::TensorDesc& desc : file) {
    const auto here = by_name.find(desc.name);
    if (here == by_name.end()) {
      check.mismatches.push_back({desc.name, "missing", "present", "absent"});
      continue;
    }
    std::optional<Mismatch> mismatch = difference(desc, *here->second);
    by_name.erase(here);
    if (mismatch)
      check.mismatches.push_back(*std::move(mismatch));
    else
      ++check.verified;
  }
  for (const auto& [name, desc] : by_name)
    check.mismatches.push_back({std::string(name), "extra", "absent", "present"});
}

/// Reads what lies in the worker's memory now, and digests it here: trusts nothing that the worker says of it.
Result<tensor::Manifest> read_worker(App& app, transfer::Session& session, const control::WorkerEntry& entry,
                                     Deadline deadline) {
  transfer::TransferManager& manager = session.manager();
  transfer::Catalogue memory =
      TOWLINE_TRY(transfer::allocate_for(entry.worker.manifest, session.device(), {.shareable = true, .pinned = true}));
  TOWLINE_TRY(manager.register_tensors(std::move(memory)));
  ProgressBar bar(app.clock(), app.progress_style(), "read");
  transfer::ReceiveOptions options = receive_options(app, deadline, bar);
  options.verify = false;
  const transfer::ReceiveReport report =
      manager.receive({entry.worker.transport_metadata, entry.worker.manifest, "worker " + entry.worker_id}, options);
  TOWLINE_TRY(Result<void>(report.status));
  const transfer::Catalogue digested =
      TOWLINE_TRY(with_digests(manager.catalogue(), session.device(), app.clock(), deadline));
  manager.release();
  return digested.manifest();
}

Result<WorkerCheck> check_worker(App& app, transfer::Session& session, const control::WorkerEntry& entry,
                                 const tensor::Manifest& file, Deadline deadline) {
  const TimePoint start = app.clock().now();
  WorkerCheck check{.worker_id = entry.worker_id, .tensors = file.size()};
  for (const tensor::TensorDesc& desc : file) check.bytes += desc.bytes;
  const tensor::Manifest found = TOWLINE_TRY(read_worker(app, session, entry, deadline));
  compare(file, found, check);
  check.elapsed = app.clock().now() - start;
  return check;
}

Document document_of(const WorkerCheck& check) {
  std::vector<Document> mismatches;
  for (const Mismatch& mismatch : check.mismatches)
    mismatches.push_back(std::move(Document()
                                       .set("tensor", mismatch.tensor)
                                       .set("what", mismatch.what)
                                       .set("expected", mismatch.expected)
                                       .set("found", mismatch.found)));
  Document document;
  document.set("worker_id", check.worker_id).set("tensor_count", uint64_t{check.tensors});
  document.set("verified_count", uint64_t{check.verified}).set("bytes", check.bytes);
  document.set("seconds", std::chrono::duration<double>(check.elapsed).count()).set("mismatches", mismatches);
  return document;
}

/// What the checkpoint on disk says: names, dtypes, shapes and the digests of its bytes.
Result<tensor::Manifest> read_checkpoint(App& app, transfer::Session& session, const std::string& path,
                                         Deadline deadline) {
  const loader::LoaderStorages storages = TOWLINE_TRY(loader::LoaderStorages::open(app.clock(), app.log()));
  return digest_checkpoint(storages.context(), session.device(), path, TOWLINE_TRY(load_options(app, deadline)));
}

Result<std::vector<control::WorkerEntry>> workers_of(control::Metadata& metadata, const ReplicaFlags& flags,
                                                     const std::vector<std::string>& wanted, Deadline deadline) {
  std::vector<control::WorkerEntry> workers;
  const control::SourceFilter filter{
      .status = control::SourceStatus::kReady, .model_name = flags.model, .rank = flags.rank};
  const std::vector<control::SourceRef> ready = TOWLINE_TRY(metadata.list(filter, deadline));
  for (const control::SourceRef& ref : ready)
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), ref.worker_id) != wanted.end())
      workers.push_back(TOWLINE_TRY(metadata.get(ref.source_id, ref.worker_id, deadline)));
  for (const std::string& id : wanted)
    if (std::none_of(workers.begin(), workers.end(), [&id](const auto& entry) { return entry.worker_id == id; }))
      return fail(Code::kNotFound, "worker {}: does not serve '{}' now; `towline ls` shows who does", id, flags.model);
  if (workers.empty())
    return fail(Code::kNotFound, "model '{}': no replica serves it now; `towline ls` shows who serves what",
                flags.model);
  return workers;
}

std::string text_of(const std::vector<WorkerCheck>& checks) {
  constexpr size_t kShownMax = 10;
  Table table({{"worker"},
               {"tensors", Table::Align::kRight},
               {"verified", Table::Align::kRight},
               {"bytes", Table::Align::kRight},
               {"seconds", Table::Align::kRight}});
  std::string mismatches;
  for (const WorkerCheck& check : checks) {
    table.add({check.worker_id, std::to_string(check.tensors), std::to_string(check.verified), to_string(check.bytes),
               seconds(check.elapsed)});
    for (size_t i = 0; i < std::min(check.mismatches.size(), kShownMax); ++i) {
      const Mismatch& mismatch = check.mismatches[i];
      mismatches += fmt::format("worker {}: tensor '{}': {}: {} in the file, {} in its memory\n", check.worker_id,
                                mismatch.tensor, mismatch.what, mismatch.expected, mismatch.found);
    }
    if (check.mismatches.size() > kShownMax)
      mismatches += fmt::format("worker {}: and {} more\n", check.worker_id, check.mismatches.size() - kShownMax);
  }
  return table.text() + mismatches;
}

Result<void> run_verify(App& app, const Arguments& arguments) {
  const Deadline deadline = app.deadline();
  const std::string checkpoint = arguments.get("checkpoint");
  const ReplicaFlags flags =
      TOWLINE_TRY(replica_flags(app, arguments, arguments.find("model").value_or(model_name_of(checkpoint))));
  const auto metadata = TOWLINE_TRY(app.connect());
  const std::vector<control::WorkerEntry> workers =
      TOWLINE_TRY(workers_of(*metadata, flags, arguments.list("worker"), deadline));
  const auto session = TOWLINE_TRY(app.open_session());
  const tensor::Manifest file = TOWLINE_TRY(read_checkpoint(app, *session, checkpoint, deadline));
  std::vector<WorkerCheck> checks;
  std::vector<Document> documents;
  size_t mismatches = 0;
  for (const control::WorkerEntry& entry : workers) {
    checks.push_back(TOWLINE_TRY(check_worker(app, *session, entry, file, deadline)));
    documents.push_back(document_of(checks.back()));
    mismatches += checks.back().mismatches.size();
  }
  TOWLINE_TRY(app.print(
      Document("towline.verify/1").set("model", flags.model).set("verified", mismatches == 0).set("workers", documents),
      text_of(checks)));
  if (mismatches == 0) return {};
  return fail(Code::kDataLoss, "model '{}': {} mismatches against '{}'; stop serving the workers named above",
              flags.model, mismatches, checkpoint);
}

}  // namespace

const VerbSpec kVerify{.name = "verify",
                       .help = "compare what replicas hold in memory with the checkpoint on disk",
                       .positionals = kPositionals,
                       .flags = kFlags,
                       .settings = kSettings,
                       .run = &run_verify};

}  // namespace towline::cli
