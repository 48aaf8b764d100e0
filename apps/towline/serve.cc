#include "app.h"
#include "replica.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {{"checkpoint", "a .safetensors file or a folder of shards"}};
constexpr FlagSpec kFlags[] = {
    {"model", "NAME", "name under which others pull it (default: the checkpoint's base name)"},
    {"worker-id", "ID", "unique per replica (default: random)"},
    {.name = "rank",
     .placeholder = "N",
     .help = "rank of this shard (default: 0)",
     .kind = OptionKind::kCount,
     .most = kRankMax},
    {"ready-file", "PATH", "written once others can pull"},
};
constexpr std::string_view kSettings[] = {"server",         "rpc_deadline",       "deadline",        "transport",
                                          "load_mode",      "heartbeat_interval", "pool_reg",        "metrics_listen",
                                          "metrics_scheme", "worker_listen",      "worker_advertise"};

Result<void> run_serve(App& app, const Arguments& arguments) {
  const TimePoint start = app.clock().now();
  const Deadline deadline = app.deadline();
  const std::string checkpoint = arguments.get("checkpoint");
  const ReplicaFlags flags =
      TOWLINE_TRY(replica_flags(app, arguments, arguments.find("model").value_or(model_name_of(checkpoint))));
  const auto ready = TOWLINE_TRY(ReadyFile::open(app, arguments.get("ready-file")));
  TOWLINE_TRY(app.serve_metrics());
  const auto metadata = TOWLINE_TRY(app.connect());
  TOWLINE_TRY(metadata->list({.model_name = flags.model}, deadline));  // no server: say so before reading gigabytes
  const auto session = TOWLINE_TRY(app.open_session());
  transfer::LoadTimer timer(app.metrics(), app.clock(), {flags.model});
  const LoadSummary summary = TOWLINE_TRY(load_from_disk(app, *session, flags.model, checkpoint, deadline));
  if (summary.tensors == 0)
    return fail(Code::kInvalidArgument, "checkpoint '{}': it holds no tensors, so there is nothing to serve",
                checkpoint);
  return serve_until_stopped(app, *session, *metadata,
                             {flags, summary, "towline.serve/1", start, deadline, timer, ready.get()});
}

}  // namespace

const VerbSpec kServe{.name = "serve",
                      .help = "load a checkpoint from disk and serve it to other replicas",
                      .positionals = kPositionals,
                      .flags = kFlags,
                      .settings = kSettings,
                      .run = &run_serve};

}  // namespace towline::cli
