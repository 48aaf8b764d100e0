#include "app.h"
#include "pull_plan.h"
#include "replica.h"
#include "towline/loader/disk_load.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {{"model", "the name it is served under"}};
constexpr FlagSpec kFlags[] = {
    {"from", "WORKER_ID", "pull from this worker only (default: the newest that is ready)"},
    {"or-load", "CHECKPOINT", "when no replica can serve it, load this from disk"},
    {"serve", "", "become a source once all is in place, until Ctrl-C"},
    {"worker-id", "ID", "with --serve: unique per replica (default: random)"},
    {.name = "rank",
     .placeholder = "N",
     .help = "rank of the shard (default: 0)",
     .kind = OptionKind::kCount,
     .most = kRankMax},
    {"dry-run", "", "print what would be pulled from where, move nothing"},
    {"ready-file", "PATH", "written when all is in place"},
};
constexpr std::string_view kSettings[] = {"server",          "rpc_deadline",   "deadline",       "transport",
                                          "verify",          "window",         "load_mode",      "heartbeat_interval",
                                          "pool_reg",        "metrics_listen", "metrics_scheme", "worker_listen",
                                          "worker_advertise"};

/// The chain of this verb: a peer, then the disk where one was named.
class PullRun {
 public:
  PullRun(App& app, transfer::Session& session, control::Metadata& metadata, const ReplicaFlags& flags,
          const Arguments& arguments, Deadline deadline)
      : app_(app), session_(session), metadata_(metadata), flags_(flags), arguments_(arguments), deadline_(deadline) {}

  Result<LoadSummary> run() {
    ProgressBar bar(app_.clock(), app_.progress_style(), "pull");
    transfer::PeerLoadOptions options;
    options.query.model_name = flags_.model;
    options.query.rank = flags_.rank;
    options.query.worker_id = arguments_.find("from");
    options.transport = session_.options().transport;
    options.receive = receive_options(app_, deadline_, bar);
    const transfer::PhaseTimer phase(app_.metrics(), app_.clock(), {flags_.model}, "chain");
    transfer::PeerLoad peer(
        {app_.clock(), app_.log(), metadata_, session_.device(), session_.manager(), app_.metrics()},
        std::move(options));
    if (!arguments_.has("or-load")) {
      TOWLINE_TRY(peer.available());
      const transfer::LoadStrategy::Attempt attempt = peer.attempt();
      if (!attempt.status.has_value()) return explained(attempt.status.error(), peer);
      return summary_of(peer, session_.options().transport);
    }
    const loader::LoaderStorages storages = TOWLINE_TRY(loader::LoaderStorages::open(app_.clock(), app_.log()));
    const loader::LoaderContext context = storages.context();
    loader::DiskLoad disk(context, session_, arguments_.get("or-load"), TOWLINE_TRY(load_options(app_, deadline_)));
    transfer::LoadStrategy* const chain[] = {&peer, &disk};
    const transfer::LoadOutcome outcome = TOWLINE_TRY(run_load_chain(chain, nullptr, app_.log()));
    return outcome.strategy == disk.name() ? summary_of(disk.report()) : summary_of(peer, session_.options().transport);
  }

 private:
  /// What failed with a worker says what can be done from here.
  Error explained(const Error& error, const transfer::PeerLoad& peer) const {
    if (!peer.source()) return error;
    return fail(
        error.code, error.scope,
        "model '{}': worker {}: {}; `towline ls` shows who else serves it, `--or-load CHECKPOINT` reads it from disk",
        flags_.model, peer.source()->worker_id, error.message);
  }

  App& app_;
  transfer::Session& session_;
  control::Metadata& metadata_;
  const ReplicaFlags& flags_;
  const Arguments& arguments_;
  Deadline deadline_;
};

Result<void> run_pull(App& app, const Arguments& arguments) {
  const TimePoint start = app.clock().now();
  const Deadline deadline = app.deadline();
  if (arguments.has("worker-id") && !arguments.has("serve"))
    return app.misuse(fail(Code::kInvalidArgument, "--worker-id is of a replica that serves; add --serve"));
  const ReplicaFlags flags = TOWLINE_TRY(replica_flags(app, arguments, arguments.get("model")));
  const auto metadata = TOWLINE_TRY(app.connect());
  if (arguments.has("dry-run"))
    return print_pull_plan(app, *metadata, flags, {arguments.find("from"), arguments.find("or-load")});
  const auto ready = TOWLINE_TRY(ReadyFile::open(app, arguments.get("ready-file")));
  TOWLINE_TRY(app.serve_metrics());
  const auto session = TOWLINE_TRY(app.open_session());
  transfer::LoadTimer timer(app.metrics(), app.clock(), {flags.model});
  const LoadSummary summary = TOWLINE_TRY(PullRun(app, *session, *metadata, flags, arguments, deadline).run());
  if (arguments.has("serve"))
    return serve_until_stopped(app, *session, *metadata,
                               {flags, summary, "towline.pull/1", start, deadline, timer, ready.get()});
  timer.succeeded();
  const Nanoseconds elapsed = app.clock().now() - start;
  const Document document = replica_document("towline.pull/1", app, flags, summary, nullptr, elapsed);
  if (ready) TOWLINE_TRY(ready->write(document));
  TOWLINE_TRY(app.print(document, replica_text(flags, summary, nullptr, elapsed)));
  if (ready) ready->keep();
  return {};
}

}  // namespace

const VerbSpec kPull{.name = "pull",
                     .help = "pull a model from a replica that serves it, and verify it",
                     .positionals = kPositionals,
                     .flags = kFlags,
                     .settings = kSettings,
                     .run = &run_pull};

}  // namespace towline::cli
