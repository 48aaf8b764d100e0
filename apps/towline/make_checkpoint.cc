#include <filesystem>

#include "app.h"
#include "arguments.h"
#include "towline/loader/checkpoint_writer.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {{"folder", "where to write it; made when it is not there"}};
constexpr FlagSpec kFlags[] = {
    {.name = "size", .placeholder = "SIZE", .help = "about (default: 1GiB)", .kind = OptionKind::kBytes},
    {.name = "shards",
     .placeholder = "N",
     .help = "files (default: 3)",
     .kind = OptionKind::kCount,
     .least = "1",
     .most = "1000"},
    {.name = "seed",
     .placeholder = "N",
     .help = "of the contents: the same seed gives the same bytes (default: 1)",
     .kind = OptionKind::kCount},
    {"force", "", "replace a checkpoint that is there"},
};
constexpr std::string_view kSettings[] = {"deadline"};

Result<void> make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return {};
  return fail(errno_code(error.value()), "folder '{}': {}", folder, errno_text(error.value()));
}

/// What a writer that was cut short leaves: its files under their temporary names.
void remove_parts(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with("model") && entry.path().extension() == ".part")
      std::filesystem::remove(entry.path(), ignored);
}

Result<void> run_make_checkpoint(App& app, const Arguments& arguments) {
  const TimePoint start = app.clock().now();
  const std::string folder = arguments.get("folder");
  loader::CheckpointWriterOptions options;
  options.shards = static_cast<uint32_t>(arguments.count("shards", 3));
  options.seed = arguments.count("seed", 1);
  options.replace = arguments.has("force");
  options.deadline = app.deadline();
  ProgressBar bar(app.clock(), app.progress_style(), "write");
  options.progress = [&bar](Bytes done, Bytes total) { bar.update(done, total); };
  const loader::CheckpointPlan plan = loader::llama_shape(arguments.bytes("size", GiB(1)));
  TOWLINE_TRY(make_folder(folder));
  const Stop::Guard parts = app.stop().guard([folder] { remove_parts(folder); });
  const auto storage = TOWLINE_TRY(storage::open_storage("posix", {app.clock(), app.log()}));
  const loader::WrittenCheckpoint written = TOWLINE_TRY(write_checkpoint(app.clock(), *storage, folder, plan, options));
  const Nanoseconds elapsed = app.clock().now() - start;
  return app.print(Document("towline.make-checkpoint/1")
                       .set("path", folder)
                       .set("bytes", written.bytes)
                       .set("tensor_count", uint64_t{written.tensors})
                       .set("shards", options.shards)
                       .set("seconds", std::chrono::duration<double>(elapsed).count()),
                   fmt::format("{}: {} tensors, {} in {} files, written in {}\n", folder, written.tensors,
                               to_string(written.bytes), options.shards, seconds(elapsed)));
}

}  // namespace

const VerbSpec kMakeCheckpoint{.name = "make-checkpoint",
                               .help = "write a Llama-shaped bf16 checkpoint of made-up numbers",
                               .positionals = kPositionals,
                               .flags = kFlags,
                               .settings = kSettings,
                               .run = &run_make_checkpoint};

}  // namespace towline::cli
