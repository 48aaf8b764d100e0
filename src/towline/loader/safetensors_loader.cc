#include "towline/loader/safetensors_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "towline/loader/internal/descriptors.h"
#include "towline/loader/internal/file_sink.h"
#include "towline/loader/internal/open_checkpoint.h"
#include "towline/storage/residency.h"

namespace towline::loader {
namespace {

using internal::DigestQueue;
using internal::OpenCheckpoint;
using internal::Shard;

double seconds_between(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

/// One load, from open files to bytes and digests in memory.
class Loading {
 public:
  Loading(const LoaderContext& context, device::Device& device, const LoadOptions& options, OpenCheckpoint& open)
      : context_(context), device_(device), options_(options), open_(open) {}

  Result<std::vector<device::MemoryRegionPtr>> allocate();
  /// Fills `regions`; digests by shard and tensor, empty without digests.
  Result<std::vector<std::vector<tensor::Digest>>> read(std::span<const device::MemoryRegionPtr> regions);
  LoadReport report() const;

 private:
  Result<void> read_shard(const Shard& shard, const device::MemoryRegionPtr& region, DigestQueue* digests);
  Result<void> read_staged(const Shard& shard, const device::RegionSlice& image, const internal::LandingTable& table);
  std::function<void(Bytes)> progress_of_shard() const;

  const LoaderContext& context_;
  device::Device& device_;
  const LoadOptions& options_;
  OpenCheckpoint& open_;
  std::unique_ptr<device::Stream> stream_;
  bool native_digests_ = false;
  Bytes done_;
  Bytes staged_;
  Bytes staging_memory_;
};

/// All memory before the first byte: a load that cannot fit fails at once.
Result<std::vector<device::MemoryRegionPtr>> Loading::allocate() {
  std::vector<device::MemoryRegionPtr> regions;
  for (const Shard& shard : open_.shards) {
    const device::AllocateOptions how{.shareable = options_.shareable, .alignment = internal::kPageBytes};
    auto region = device_.allocate(shard.image_bytes(), how);
    if (!region) {
      return Error{region.error().code, region.error().scope,
                   fmt::format("file '{}': no memory for its {}: {}", shard.path, to_string(shard.image_bytes()),
                               region.error().message)};
    }
    regions.push_back(*std::move(region));
  }
  return regions;
}

std::function<void(Bytes)> Loading::progress_of_shard() const {
  if (!options_.progress) return {};
  return [this](Bytes landed) { options_.progress({done_ + landed, open_.data_bytes}); };
}

Result<std::vector<std::vector<tensor::Digest>>> Loading::read(std::span<const device::MemoryRegionPtr> regions) {
  stream_ = TOWLINE_TRY(device_.open_stream(std::nullopt));
  native_digests_ = internal::digests_natively(device_);
  std::vector<std::unique_ptr<DigestQueue>> queues;
  for (size_t i = 0; i < open_.shards.size(); ++i) {
    const Shard& shard = open_.shards[i];
    if (options_.digests) {
      queues.push_back(std::make_unique<DigestQueue>(shard.header, native_digests_ ? stream_.get() : nullptr,
                                                     context_.clock, options_.deadline));
    }
    TOWLINE_TRY(read_shard(shard, regions[i], options_.digests ? queues.back().get() : nullptr));
    done_ += shard.header.data_bytes();
  }
  std::vector<std::vector<tensor::Digest>> digests;
  for (const auto& queue : queues) digests.push_back(TOWLINE_TRY(queue->finish()));
  for (const Shard& shard : open_.shards) TOWLINE_TRY(internal::check_unchanged(shard));
  return digests;
}

Result<void> Loading::read_shard(const Shard& shard, const device::MemoryRegionPtr& region, DigestQueue* digests) {
  const device::RegionSlice image{region, Bytes(0), shard.image_bytes()};
  const internal::LandingTable table{shard.header.data_offset(), digests, progress_of_shard()};
  const bool readable = region->host_view() != nullptr && (native_digests_ || !options_.digests);
  if (options_.always_stage || !readable) return read_staged(shard, image, table);
  internal::ImageSink sink(*shard.storage, {image, shard.image_begin(), table});
  return internal::read_chunks(shard.source(context_.clock, options_.deadline),
                               {shard.image_begin(), shard.stamp.bytes}, sink);
}

Result<void> Loading::read_staged(const Shard& shard, const device::RegionSlice& image,
                                  const internal::LandingTable& table) {
  internal::StagingSink sink(context_.clock, options_.deadline, *stream_,
                             {image, shard.image_begin(), !native_digests_, table});
  TOWLINE_TRY(sink.open(*shard.storage, options_.staging_bytes));
  staging_memory_ = std::max(staging_memory_, sink.bytes());
  staged_ += shard.header.data_bytes();
  // Half of the slots being read, half being copied on.
  const size_t in_flight = std::clamp<size_t>(sink.slots() / 2, 1, internal::kChunksInFlight);
  TOWLINE_TRY(internal::read_chunks(shard.source(context_.clock, options_.deadline),
                                    {shard.image_begin(), shard.stamp.bytes, in_flight}, sink));
  return sink.finish();
}

LoadReport Loading::report() const {
  LoadReport report;
  report.files = open_.shards.size();
  report.tensors = open_.tensors;
  report.bytes = open_.data_bytes;
  report.staged_bytes = staged_;
  report.extra_memory = staging_memory_;
  std::set<std::string> reasons;
  for (const Shard& shard : open_.shards) {
    const bool direct = shard.file->path() == storage::DataPath::kDirect;
    (direct ? report.direct_bytes : report.buffered_bytes) += shard.header.data_bytes();
    report.fell_back |= shard.choice.fell_back || (shard.choice.direct && !direct);
    const std::string late = shard.choice.direct && !direct ? fmt::format("; {}", shard.file->path_reason()) : "";
    if (reasons.size() < 4) reasons.insert(shard.choice.reason + late);
    report.extra_memory += shard.header_buffer + (shard.image_bytes() - shard.header.data_bytes());
  }
  report.reason = fmt::format("{}", fmt::join(reasons, "; "));
  const bool buffered = report.direct_bytes == Bytes(0);
  report.path = buffered ? "buffered" : report.buffered_bytes == Bytes(0) ? "direct" : "mixed";
  return report;
}

/// The tensors of one shard, whose data lies at `image` + their offset.
void add_tensors(const Shard& shard, const device::MemoryRegionPtr& region, std::span<const tensor::Digest> digests,
                 std::vector<LoadedTensor>& tensors) {
  const Bytes data = shard.header.data_offset() - shard.image_begin();
  for (size_t i = 0; i < shard.header.size(); ++i) {
    LoadedTensor to = internal::place(shard.header[i], region, data);
    if (!digests.empty()) to.desc.digest = digests[i];
    tensors.push_back(std::move(to));
  }
}

/// Where each shard's tensors would lie in the regions of `loaded`, compared by name, place, dtype and shape.
Result<void> check_layout(const OpenCheckpoint& open, const LoadedCheckpoint& loaded) {
  const auto differs = [](std::string_view what) {
    return fail(Code::kFailedPrecondition, "the checkpoint has another layout than the one in memory: {}; load it anew",
                what);
  };
  if (open.shards.size() != loaded.regions.size()) return differs("another number of files");
  std::vector<LoadedTensor> planned;
  for (size_t i = 0; i < open.shards.size(); ++i) {
    if (open.shards[i].image_bytes() > loaded.regions[i]->bytes()) return differs("a file is larger");
    add_tensors(open.shards[i], loaded.regions[i], {}, planned);
  }
  if (planned.size() != loaded.tensors.size()) return differs("another number of tensors");
  for (size_t i = 0; i < planned.size(); ++i) {
    tensor::TensorDesc there = loaded.tensors[i].desc;
    there.digest.reset();
    if (planned[i].desc != there) return differs(fmt::format("tensor {}", quoted_name(planned[i].desc.name)));
  }
  return {};
}

LoadReport timed(LoadReport report, TimePoint start, TimePoint opened, TimePoint end) {
  report.seconds = seconds_between(start, end);
  report.header_seconds = seconds_between(start, opened);
  return report;
}

}  // namespace

tensor::Manifest LoadedCheckpoint::manifest() const {
  tensor::Manifest all;
  all.reserve(tensors.size());
  for (const LoadedTensor& one : tensors) all.push_back(one.desc);
  return all;
}

Result<LoadedCheckpoint> load_checkpoint(const LoaderContext& context, device::Device& device, const std::string& path,
                                         const LoadOptions& options) {
  const TimePoint start = context.clock.now();
  OpenCheckpoint open = TOWLINE_TRY(internal::open_checkpoint(context, path, options));
  const TimePoint opened = context.clock.now();
  Loading loading(context, device, options, open);
  LoadedCheckpoint loaded;
  loaded.regions = TOWLINE_TRY(loading.allocate());
  const auto digests = TOWLINE_TRY(loading.read(loaded.regions));
  loaded.tensors.reserve(open.tensors);
  for (size_t i = 0; i < open.shards.size(); ++i) {
    add_tensors(open.shards[i], loaded.regions[i], digests.empty() ? std::span<const tensor::Digest>() : digests[i],
                loaded.tensors);
    loaded.metadata.insert(open.shards[i].header.metadata().begin(), open.shards[i].header.metadata().end());
  }
  loaded.report = timed(loading.report(), start, opened, context.clock.now());
  return loaded;
}

Result<void> reload_checkpoint(const LoaderContext& context, device::Device& device, const std::string& path,
                               LoadedCheckpoint& loaded, const LoadOptions& options) {
  const TimePoint start = context.clock.now();
  OpenCheckpoint open = TOWLINE_TRY(internal::open_checkpoint(context, path, options));
  TOWLINE_TRY(check_layout(open, loaded));
  const TimePoint opened = context.clock.now();
  Loading loading(context, device, options, open);
  loaded.dirty = true;
  const auto digests = TOWLINE_TRY(loading.read(loaded.regions));
  size_t next = 0;
  for (size_t i = 0; i < open.shards.size(); ++i) {
    for (size_t j = 0; j < open.shards[i].header.size(); ++j, ++next) {
      loaded.tensors[next].desc.digest = digests.empty() ? std::nullopt : std::optional(digests[i][j]);
    }
  }
  loaded.dirty = false;
  loaded.report = timed(loading.report(), start, opened, context.clock.now());
  return {};
}

std::string_view read_mode_name(ReadMode mode) {
  if (mode == ReadMode::kAuto) return "auto";
  return mode == ReadMode::kDirect ? "direct" : "buffered";
}

std::optional<ReadMode> parse_read_mode(std::string_view text) {
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kDirect, ReadMode::kBuffered}) {
    if (text == read_mode_name(mode)) return mode;
  }
  return std::nullopt;
}

Result<LoaderStorages> LoaderStorages::open(Clock& clock, LogSink& log) {
  const storage::StorageContext context{clock, log};
  LoaderStorages storages(clock, log);
  storages.buffered_ = TOWLINE_TRY(storage::open_storage("posix", context));
  auto direct = storage::open_storage("io_uring", context);
  if (direct.has_value()) {
    storages.direct_ = *std::move(direct);
  } else {
    storages.direct_absent_ = direct.error().message;
  }
  return storages;
}

LoaderContext LoaderStorages::context() const {
  return LoaderContext{
      .clock = *clock_,
      .log = *log_,
      .buffered = *buffered_,
      .direct = direct_.get(),
      .direct_absent = direct_absent_,
      .resident_share = [](const std::string& path) { return storage::resident_share(path, storage::FileRange{}); }};
}

}  // namespace towline::loader
