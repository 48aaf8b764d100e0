#include "app.h"
#include "replica.h"
#include "towline/device/host.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {{"checkpoint", "a .safetensors file or a folder of shards"}};
constexpr std::string_view kSettings[] = {"deadline", "load_mode"};

Result<void> run_load(App& app, const Arguments& arguments) {
  const TimePoint start = app.clock().now();
  const std::string checkpoint = arguments.get("checkpoint");
  const auto device = device::open_host_device({app.clock(), app.log()}, {});
  const loader::LoaderStorages storages = TOWLINE_TRY(loader::LoaderStorages::open(app.clock(), app.log()));
  ProgressBar bar(app.clock(), app.progress_style(), "load");
  loader::LoadOptions options = TOWLINE_TRY(load_options(app, app.deadline()));
  options.shareable = false;
  options.progress = [&bar](const loader::LoadProgress& now) { bar.update(now.done, now.total); };
  const loader::LoadedCheckpoint loaded =
      TOWLINE_TRY(load_checkpoint(storages.context(), *device, checkpoint, options));
  const Nanoseconds elapsed = app.clock().now() - start;
  const ReplicaFlags flags{.model = model_name_of(checkpoint)};
  const LoadSummary summary = summary_of(loaded.report);
  return app.print(replica_document("towline.load/1", app, flags, summary, nullptr, elapsed),
                   replica_text(flags, summary, nullptr, elapsed) + loaded.report.reason + "\n");
}

}  // namespace

const VerbSpec kLoad{.name = "load",
                     .help = "read a checkpoint into memory and say how long it took",
                     .positionals = kPositionals,
                     .flags = {},
                     .settings = kSettings,
                     .run = &run_load};

}  // namespace towline::cli
