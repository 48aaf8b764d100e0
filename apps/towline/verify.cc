#include <algorithm>
#include <map>

#include "app.h"
#include "replica.h"
#include "towline/base/text.h"
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

/// As a pull has them: one worker that does not answer leaves time for the others.
constexpr Nanoseconds kConnectTimeout = std::chrono::seconds(10);
constexpr Nanoseconds kStallTimeout = std::chrono::seconds(20);

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
  std::optional<Error> unread;  ///< why its memory was not read; then nothing was compared
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

/// What a manager holds for one worker goes before the next, however reading it ended.
class Released {
 public:
  explicit Released(transfer::TransferManager& manager) : manager_(manager) {}
  Released(const Released&) = delete;
  ~Released() { manager_.release(); }

 private:
  transfer::TransferManager& manager_;
};

/// Reads what lies in the worker's memory now, and digests it here: trusts nothing that the worker says of it.
Result<tensor::Manifest> read_worker(App& app, transfer::Session& session, const control::WorkerEntry& entry,
                                     Deadline deadline) {
  transfer::TransferManager& manager = session.manager();
  transfer::Catalogue memory =
      TOWLINE_TRY(transfer::allocate_for(entry.worker.manifest, session.device(), {.shareable = true, .pinned = true}));
  TOWLINE_TRY(manager.register_tensors(std::move(memory)));
  const Released released(manager);
  ProgressBar bar(app.clock(), app.progress_style(), "read");
  transfer::ReceiveOptions options = receive_options(app, deadline, bar);
  options.verify = false;
  options.connect_timeout = std::min(options.connect_timeout, kConnectTimeout);
  options.stall_timeout = std::min(options.stall_timeout, kStallTimeout);
  const transfer::ReceiveReport report =
      manager.receive({entry.worker.transport_metadata, entry.worker.manifest, "worker " + entry.worker_id}, options);
  TOWLINE_TRY(Result<void>(report.status));
  const transfer::Catalogue digested =
      TOWLINE_TRY(with_digests(manager.catalogue(), session.device(), app.clock(), deadline));
  return digested.manifest();
}

/// One that cannot be read is a finding too, and the others are looked at all the same.
WorkerCheck check_worker(App& app, transfer::Session& session, control::Metadata& metadata,
                         const control::SourceRef& worker, const tensor::Manifest& file, Deadline deadline) {
  const TimePoint start = app.clock().now();
  WorkerCheck check{.worker_id = worker.worker_id, .tensors = file.size()};
  for (const tensor::TensorDesc& desc : file) check.bytes += desc.bytes;
  const auto read = [&]() -> Result<tensor::Manifest> {
    const control::WorkerEntry entry = TOWLINE_TRY(metadata.get(worker.source_id, worker.worker_id, deadline));
    return read_worker(app, session, entry, deadline);
  };
  if (const Result<tensor::Manifest> found = read(); found.has_value())
    compare(file, *found, check);
  else
    check.unread = found.error();
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
  document.set("error", check.unread ? std::optional(check.unread->message) : std::nullopt);
  return document;
}

/// What the checkpoint on disk says: names, dtypes, shapes and the digests of its bytes.
Result<tensor::Manifest> read_checkpoint(App& app, transfer::Session& session, const std::string& path,
                                         Deadline deadline) {
  const loader::LoaderStorages storages = TOWLINE_TRY(loader::LoaderStorages::open(app.clock(), app.log()));
  return digest_checkpoint(storages.context(), session.device(), path, TOWLINE_TRY(load_options(app, deadline)));
}

Result<std::vector<control::SourceRef>> workers_of(control::Metadata& metadata, const ReplicaFlags& flags,
                                                   const std::vector<std::string>& wanted, Deadline deadline) {
  const control::SourceFilter filter{
      .status = control::SourceStatus::kReady, .model_name = flags.model, .rank = flags.rank};
  std::vector<control::SourceRef> workers = TOWLINE_TRY(metadata.list(filter, deadline));
  if (!wanted.empty())
    std::erase_if(workers, [&wanted](const control::SourceRef& ref) {
      return std::find(wanted.begin(), wanted.end(), ref.worker_id) == wanted.end();
    });
  for (const std::string& id : wanted)
    if (std::none_of(workers.begin(), workers.end(), [&id](const auto& ref) { return ref.worker_id == id; }))
      return fail(Code::kNotFound, "worker {}: does not serve '{}' now; `towline ls` shows who does", id, flags.model);
  if (workers.empty())
    return fail(Code::kNotFound, "model '{}': no replica serves rank {} now; `towline ls` shows who serves what",
                flags.model, flags.rank);
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
    if (check.unread)
      mismatches += fmt::format("worker {}: not read: {}\n", escape_control(check.worker_id),
                                escape_control(check.unread->message));
    for (size_t i = 0; i < std::min(check.mismatches.size(), kShownMax); ++i) {
      const Mismatch& mismatch = check.mismatches[i];
      mismatches +=
          fmt::format("worker {}: tensor '{}': {}: {} in the file, {} in its memory\n", escape_control(check.worker_id),
                      escape_control(mismatch.tensor), mismatch.what, mismatch.expected, mismatch.found);
    }
    if (check.mismatches.size() > kShownMax)
      mismatches +=
          fmt::format("worker {}: and {} more\n", escape_control(check.worker_id), check.mismatches.size() - kShownMax);
  }
  return table.text() + mismatches;
}

/// What is wrong, of all of them; nothing when all hold what the file has.
Result<void> verdict(const std::vector<WorkerCheck>& checks, const std::string& model, const std::string& checkpoint) {
  size_t mismatches = 0;
  std::vector<const WorkerCheck*> unread;
  for (const WorkerCheck& check : checks) {
    mismatches += check.mismatches.size();
    if (check.unread) unread.push_back(&check);
  }
  const std::string more =
      unread.empty() ? "" : fmt::format("; {} of {} workers could not be read", unread.size(), checks.size());
  if (mismatches > 0)
    return fail(Code::kDataLoss, "model '{}': {} mismatches against '{}'{}; stop serving the workers named above",
                model, mismatches, checkpoint, more);
  if (unread.empty()) return {};
  return fail(
      unread.front()->unread->code,
      "model '{}': {} of {} workers could not be read, the first of them {}: {}; see its log, or start it again", model,
      unread.size(), checks.size(), unread.front()->worker_id, unread.front()->unread->message);
}

Result<void> run_verify(App& app, const Arguments& arguments) {
  const Deadline deadline = app.deadline();
  const std::string checkpoint = arguments.get("checkpoint");
  const ReplicaFlags flags =
      TOWLINE_TRY(replica_flags(app, arguments, arguments.find("model").value_or(model_name_of(checkpoint))));
  const auto metadata = TOWLINE_TRY(app.connect());
  const std::vector<control::SourceRef> workers =
      TOWLINE_TRY(workers_of(*metadata, flags, arguments.list("worker"), deadline));
  const auto session = TOWLINE_TRY(app.open_session());
  const tensor::Manifest file = TOWLINE_TRY(read_checkpoint(app, *session, checkpoint, deadline));
  std::vector<WorkerCheck> checks;
  std::vector<Document> documents;
  for (const control::SourceRef& worker : workers) {
    checks.push_back(check_worker(app, *session, *metadata, worker, file, deadline));
    documents.push_back(document_of(checks.back()));
    if (app.stop().cut()) return fail(Code::kCancelled, "stopped");
  }
  const Result<void> found = verdict(checks, flags.model, checkpoint);
  TOWLINE_TRY(app.print(Document("towline.verify/1")
                            .set("model", flags.model)
                            .set("verified", found.has_value())
                            .set("workers", documents),
                        text_of(checks)));
  return found;
}

}  // namespace

const VerbSpec kVerify{.name = "verify",
                       .help = "compare what replicas hold in memory with the checkpoint on disk",
                       .positionals = kPositionals,
                       .flags = kFlags,
                       .settings = kSettings,
                       .run = &run_verify};

}  // namespace towline::cli
