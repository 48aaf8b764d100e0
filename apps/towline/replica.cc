#include "replica.h"

#include <unistd.h>

#include <filesystem>

#include "towline/base/rng.h"
#include "towline/base/text.h"
#include "towline/loader/disk_load.h"

namespace towline::cli {
namespace {

double in_seconds(Nanoseconds span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

std::string model_name_of(const std::string& checkpoint) {
  std::filesystem::path path(checkpoint);
  if (!path.has_filename()) path = path.parent_path();
  return path.extension() == ".safetensors" ? path.stem().string() : path.filename().string();
}

namespace {

constexpr size_t kWorkerIdBytesMax = 1024;  // the server's limit

Result<void> check_flags(const ReplicaFlags& flags) {
  if (flags.model.empty())
    return fail(Code::kInvalidArgument, "the model has no name: give the one that `towline ls` lists, or --model NAME");
  if (!is_utf8(flags.model))
    return fail(Code::kInvalidArgument, "model '{}': its name is not UTF-8; give it another", flags.model);
  if (flags.worker_id.empty())
    return fail(Code::kInvalidArgument, "--worker-id is empty; leave it out for a random one");
  if (flags.worker_id.size() > kWorkerIdBytesMax || !is_utf8(flags.worker_id))
    return fail(Code::kInvalidArgument, "--worker-id: {} bytes; at most {} bytes of UTF-8", flags.worker_id.size(),
                kWorkerIdBytesMax);
  return {};
}

}  // namespace

Result<ReplicaFlags> replica_flags(App& app, const Arguments& arguments, const std::string& model) {
  ReplicaFlags flags{.model = model};
  flags.worker_id = arguments.find("worker-id").value_or(fmt::format("{:08x}", entropy() & 0xffffffffu));
  flags.rank = Rank(static_cast<uint32_t>(arguments.count("rank", 0)));
  if (Result<void> checked = check_flags(flags); !checked.has_value()) return app.misuse(std::move(checked).error());
  return flags;
}

Result<loader::LoadOptions> load_options(App& app, Deadline deadline) {
  const std::optional<loader::ReadMode> mode = loader::parse_read_mode(app.options().text("load_mode"));
  if (!mode) return fail(Code::kInvalidArgument, "load_mode '{}' is unknown", app.options().text("load_mode"));
  return loader::LoadOptions{.mode = *mode, .shareable = true, .deadline = deadline};
}

transfer::ReceiveOptions receive_options(App& app, Deadline deadline, ProgressBar& bar) {
  transfer::ReceiveOptions options{.deadline = deadline, .verify = app.options().flag("verify")};
  options.window_bytes = app.options().bytes("window");
  options.on_progress = [&bar](const transfer::Progress& now) { bar.update(now.bytes_done, now.bytes_total); };
  return options;
}

LoadSummary summary_of(const loader::LoadReport& report) {
  LoadSummary summary{.path = fmt::format("disk, {}", report.path)};
  summary.bytes = report.bytes;
  summary.tensors = report.tensors;
  summary.transfer =
      std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(report.seconds - report.header_seconds));
  return summary;
}

LoadSummary summary_of(const transfer::PeerLoad& load, std::string_view transport) {
  const transfer::ReceiveReport& report = load.report();
  LoadSummary summary{.path = fmt::format("peer, {}", transport), .from_worker_id = load.source()->worker_id};
  summary.bytes = report.bytes;
  summary.tensors = report.tensors;
  summary.verified = report.verified;
  summary.verification = report.verified > 0;
  summary.transfer = report.wire + report.verify;
  summary.verify = report.verify;
  return summary;
}

Result<LoadSummary> load_from_disk(App& app, transfer::Session& session, const std::string& model,
                                   const std::string& checkpoint, Deadline deadline) {
  const loader::LoaderStorages storages = TOWLINE_TRY(loader::LoaderStorages::open(app.clock(), app.log()));
  const loader::LoaderContext context = storages.context();
  ProgressBar bar(app.clock(), app.progress_style(), "load");
  loader::LoadOptions options = TOWLINE_TRY(load_options(app, deadline));
  options.progress = [&bar](const loader::LoadProgress& now) { bar.update(now.done, now.total); };
  loader::DiskLoad load(context, session, checkpoint, std::move(options));
  const transfer::PhaseTimer phase(app.metrics(), app.clock(), {model}, "chain");
  TOWLINE_TRY(load.attempt().status);
  return summary_of(load.report());
}

Document replica_document(std::string_view schema, App& app, const ReplicaFlags& flags, const LoadSummary& summary,
                          const transfer::Serving* serving, Nanoseconds elapsed) {
  const auto served = [&](const std::string& value) {
    return serving == nullptr ? std::nullopt : std::optional(value);
  };
  const bool all = summary.verified == summary.tensors;
  Document document(schema);
  document.set("pid", int64_t{getpid()}).set("model", flags.model).set("worker_id", served(flags.worker_id));
  document.set("source_id", serving == nullptr ? std::nullopt : std::optional(serving->source().source_id));
  document.set("rank", flags.rank.value()).set("transport", app.options().text("transport"));
  document.set("address", serving == nullptr ? std::nullopt : std::optional(serving->worker_endpoint()));
  document.set("metrics_address", app.metrics_address());
  document.set("path", summary.path).set("from_worker_id", summary.from_worker_id);
  document.set("tensor_count", uint64_t{summary.tensors}).set("bytes", summary.bytes);
  document.set("seconds", in_seconds(elapsed)).set("transfer_seconds", in_seconds(summary.transfer));
  document.set("verify_seconds", in_seconds(summary.verify));
  document.set("bytes_per_s", per_second(summary.bytes, summary.transfer));
  document.set("verified", summary.verification ? std::optional(all) : std::nullopt);
  document.set("verified_count", uint64_t{summary.verified});
  return document;
}

std::string replica_text(const ReplicaFlags& flags, const LoadSummary& summary, const transfer::Serving* serving,
                         Nanoseconds elapsed) {
  std::string text = fmt::format("{}: {} tensors, {} in {} ({}; {}{})\n", escape_control(flags.model), summary.tensors,
                                 to_string(summary.bytes), seconds(elapsed), summary.path,
                                 gigabytes_per_s(per_second(summary.bytes, summary.transfer)),
                                 summary.verification ? fmt::format("; {} verified", summary.verified) : "");
  if (serving != nullptr)
    text += fmt::format("serving as worker {} (source {}); stop with Ctrl-C\n", escape_control(flags.worker_id),
                        serving->source().source_id);
  return text;
}

Result<void> serve_until_stopped(App& app, transfer::Session& session, control::Metadata& metadata,
                                 const LoadedReplica& replica) {
  const ReplicaFlags& flags = replica.flags;
  transfer::ServingOptions options;
  options.identity.mx_version = TOWLINE_VERSION;
  options.identity.model_name = flags.model;
  options.rank = flags.rank;
  options.worker_id = flags.worker_id;
  options.publisher.interval = app.options().duration("heartbeat_interval");
  options.worker_listen = app.options().text("worker_listen");
  options.worker_advertise = app.options().text("worker_advertise");
  options.on_lost = [&app] { app.stop().end(); };
  const auto publish = [&] {
    const transfer::PhaseTimer phase(app.metrics(), app.clock(), {flags.model}, "publish");
    return transfer::Serving::start(session, metadata, std::move(options), replica.deadline);
  };
  const auto serving = TOWLINE_TRY(publish());
  if (!app.stop().begin_serving()) return fail(Code::kCancelled, "model '{}': not served", flags.model);
  replica.timer.succeeded();
  const Nanoseconds elapsed = app.clock().now() - replica.start;
  const Document document = replica_document(replica.schema, app, flags, replica.summary, serving.get(), elapsed);
  if (replica.ready_file != nullptr) TOWLINE_TRY(replica.ready_file->write(document));
  TOWLINE_TRY(app.print(document, replica_text(flags, replica.summary, serving.get(), elapsed)));
  app.stop().wait();
  TOWLINE_TRY(serving->lost());
  app.say("stopping: withdrawing from the server");
  if (replica.ready_file != nullptr) replica.ready_file->keep();
  return {};
}

}  // namespace towline::cli
