#include "towline/storage/memory.h"

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "towline/storage/internal/io_piece.h"
#include "towline/storage/internal/memory_inode.h"

namespace towline::storage {

namespace {

using internal::MemoryInode;
using Names = std::map<std::string, std::shared_ptr<MemoryInode>>;

constexpr Bytes kDiskBytes = GiB(16);
constexpr Bytes kSegmentBytesMax = GiB(1024);
constexpr uint64_t kRegionsMax = 1 << 16;
constexpr uint64_t kSegmentsMax = 1 << 16;
constexpr std::string_view kReason = "files in the memory of this process have no medium to be direct to";

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}
std::string without_slash(const std::string& folder) {
  return folder.size() > 1 && folder.back() == '/' ? folder.substr(0, folder.size() - 1) : folder;
}

}  // namespace

struct MemoryDisk::Contents {
  explicit Contents(Bytes bytes) : capacity(bytes) {}
  const Bytes capacity;
  std::mutex mutex;
  Names names;         // guarded by mutex, as all below
  Names synced_names;  // as the medium has them: what a crash leaves
  uint64_t crashes = 0;

  Bytes used() const {
    std::set<const MemoryInode*> counted;  // open files that were removed no longer count: as small as the lie is
    Bytes sum;
    for (const auto& [name, inode] : names)
      if (counted.insert(inode.get()).second) sum += inode->footprint();
    return sum;
  }
  /// Whether `inode` may grow to `size`.
  Result<void> admit(const std::string& path, const MemoryInode& inode, Bytes size) const {
    const Bytes wanted = MemoryInode::footprint_for(size);
    if (wanted <= inode.footprint()) return {};
    const Bytes free = capacity - std::min(capacity, used());
    if (wanted - inode.footprint() <= free) return {};
    return fail(Code::kResourceExhausted, Scope::kEndpoint,
                "file '{}': cannot grow to {}: {} free of {}; free some space", path, to_string(size), to_string(free),
                to_string(capacity));
  }
};

MemoryDisk::MemoryDisk(Bytes capacity) : contents_(std::make_shared<Contents>(capacity)) {}
MemoryDisk::~MemoryDisk() = default;

void MemoryDisk::crash(const CrashOptions& options) {
  std::lock_guard lock(contents_->mutex);
  ++contents_->crashes;
  Rng rng(options.seed);
  contents_->names = contents_->synced_names;
  std::set<const MemoryInode*> crashed;
  for (const auto& [name, inode] : contents_->names) {
    inode->locked = false;
    if (crashed.insert(inode.get()).second) inode->crash(rng, options.page_survival);
  }
}

namespace {

using Contents = MemoryDisk::Contents;

class MemoryFile final : public File {
 public:
  /// `inode` is locked for this file already where `locks`.
  MemoryFile(std::shared_ptr<Contents> disk, std::shared_ptr<MemoryInode> inode, std::string name,
             const OpenOptions& options, const Storage* storage, Clock& clock, std::function<void()> note)
      : disk_(std::move(disk)),
        inode_(std::move(inode)),
        name_(std::move(name)),
        options_(options),
        storage_(storage),
        clock_(clock),
        note_(std::move(note)),
        crashes_(disk_->crashes) {}
  ~MemoryFile() override {
    std::lock_guard lock(disk_->mutex);
    if (options_.exclusive_lock && crashes_ == disk_->crashes) inode_->locked = false;
  }

  Result<Completion> submit(Direction direction, std::span<const Segment> segments, device::Stream* order,
                            Deadline deadline) override;
  Result<Completion> sync(SyncKind kind, Deadline deadline) override;
  Result<Bytes> size() override {
    std::lock_guard lock(disk_->mutex);
    TOWLINE_TRY(check_alive());
    return inode_->size();
  }
  DataPath path() const override { return DataPath::kFallback; }
  std::string_view path_reason() const override { return kReason; }

 private:
  Result<void> check_alive() const {  // under the disk's mutex
    if (crashes_ == disk_->crashes) return {};
    return fail(Code::kUnavailable, Scope::kEndpoint, "file '{}': the disk crashed since it was opened", name_);
  }
  Result<void> run(Direction direction, std::span<const Segment> segments, std::vector<Bytes>& moved);
  Result<Bytes> move_segment(Direction direction, const Segment& segment);
  Error late() const {
    return fail(Code::kDeadlineExceeded, "file '{}': the deadline had passed before the request", name_);
  }
  Completion end(Result<void> result, std::vector<Bytes> moved) {
    Completion completion = completed(std::move(result), std::move(moved));
    note_();
    return completion;
  }

  const std::shared_ptr<Contents> disk_;
  const std::shared_ptr<MemoryInode> inode_;
  const std::string name_;
  const OpenOptions options_;
  const Storage* const storage_;
  Clock& clock_;
  const std::function<void()> note_;
  const uint64_t crashes_;
};

Result<Completion> MemoryFile::submit(Direction direction, std::span<const Segment> segments, device::Stream* order,
                                      Deadline deadline) {
  if (order != nullptr)
    return fail(Code::kUnimplemented, "storage 'memory' has no stream order; wait for the stream first");
  if (direction == Direction::kWrite && !options_.write)
    return fail(Code::kFailedPrecondition, "file '{}': opened without write", name_);
  if (segments.size() > kSegmentsMax)
    return fail(Code::kResourceExhausted, "file '{}': {} segments, the limit is {}", name_, segments.size(),
                kSegmentsMax);
  TOWLINE_TRY(
      internal::check_segments(segments, {.path = name_, .storage = storage_, .segment_bytes_max = kSegmentBytesMax}));
  std::vector<Bytes> moved(segments.size());
  if (clock_.now() >= deadline) return end(late(), std::move(moved));
  Result<void> result = run(direction, segments, moved);
  return end(std::move(result), std::move(moved));
}

Result<void> MemoryFile::run(Direction direction, std::span<const Segment> segments, std::vector<Bytes>& moved) {
  std::lock_guard lock(disk_->mutex);
  TOWLINE_TRY(check_alive());
  for (size_t i = 0; i < segments.size(); ++i) moved[i] = TOWLINE_TRY(move_segment(direction, segments[i]));
  return {};
}

Result<Bytes> MemoryFile::move_segment(Direction direction, const Segment& segment) {
  std::byte* const memory = segment.region->slice().host_view() + segment.region_offset.size();
  const std::span<std::byte> bytes(memory, segment.bytes.size());
  if (direction == Direction::kRead) return Bytes(inode_->read(segment.file_offset.count(), bytes));
  if (bytes.empty()) return Bytes(0);
  TOWLINE_TRY(disk_->admit(name_, *inode_, std::max(inode_->size(), segment.file_offset + segment.bytes)));
  inode_->write(segment.file_offset.count(), bytes);
  return segment.bytes;
}

Result<Completion> MemoryFile::sync(SyncKind, Deadline deadline) {
  if (clock_.now() >= deadline) return end(late(), {});
  const auto run = [this]() -> Result<void> {
    std::lock_guard lock(disk_->mutex);
    TOWLINE_TRY(check_alive());
    inode_->sync();
    return {};
  };
  return end(run(), {});
}

class MemoryStorage final : public Storage {
 public:
  MemoryStorage(Clock& clock, std::shared_ptr<Contents> disk) : clock_(clock), disk_(std::move(disk)) {}

  const StorageCaps& caps() const override { return caps_; }
  Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override;
  Result<std::shared_ptr<const StorageRegion>> register_region(device::RegionSlice slice) override {
    TOWLINE_TRY(internal::check_region(slice, caps_.name));
    TOWLINE_TRY(regions_.add(caps_.name));
    return std::make_shared<const internal::HostRegion>(std::move(slice), this,
                                                        [this](const internal::HostRegion&) { regions_.remove(); });
  }
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<Bytes> free_space(const std::string&) override {
    std::lock_guard lock(disk_->mutex);
    return disk_->capacity - std::min(disk_->capacity, disk_->used());
  }
  Result<void> sync_folder(const std::string& folder, Deadline deadline) override;
  size_t progress() override { return completed_.exchange(0, std::memory_order_relaxed); }
  const Signal& signal() const override { return signal_; }

 private:
  Result<std::shared_ptr<MemoryInode>> find_or_create(const std::string& path, const OpenOptions& options);
  Result<void> prepare(const std::string& path, MemoryInode& inode, const OpenOptions& options) const;

  Clock& clock_;
  const std::shared_ptr<Contents> disk_;
  const StorageCaps caps_{.name = "memory",
                          .path = DataPath::kFallback,
                          .reason = std::string(kReason),
                          .regions_max = kRegionsMax,
                          .segment_bytes_max = kSegmentBytesMax,
                          .segments_in_flight_max = kSegmentsMax,
                          .progresses_itself = true};
  internal::RegionCount regions_{kRegionsMax};
  std::atomic<size_t> completed_{0};
  Signal signal_;
};

Result<std::shared_ptr<MemoryInode>> MemoryStorage::find_or_create(const std::string& path,
                                                                   const OpenOptions& options) {
  const auto found = disk_->names.find(path);
  if (found != disk_->names.end()) return found->second;
  if (!options.create) return fail(Code::kNotFound, Scope::kEndpoint, "file '{}': no such file on this disk", path);
  return std::make_shared<MemoryInode>();
}

Result<void> MemoryStorage::prepare(const std::string& path, MemoryInode& inode, const OpenOptions& options) const {
  if (options.exclusive_lock && inode.locked)
    return fail(Code::kFailedPrecondition, Scope::kEndpoint,
                "file '{}': locked by another open of it; stop its owner or use another file", path);
  if (options.reserve > Bytes(0)) TOWLINE_TRY(disk_->admit(path, inode, options.reserve));
  if (options.truncate) inode.truncate();
  inode.reserve(options.reserve);
  inode.locked = inode.locked || options.exclusive_lock;
  return {};
}

Result<std::unique_ptr<File>> MemoryStorage::open(const std::string& path, const OpenOptions& options) {
  if (!options.write && (options.create || options.truncate || options.exclusive_lock || options.reserve > Bytes(0)))
    return fail(Code::kInvalidArgument, "file '{}': create, truncate, exclusive_lock and reserve need write", path);
  if (path.empty() || path.back() == '/') return fail(Code::kInvalidArgument, "file '{}': a folder, not a file", path);
  std::lock_guard lock(disk_->mutex);
  auto inode = TOWLINE_TRY(find_or_create(path, options));
  TOWLINE_TRY(prepare(path, *inode, options));
  disk_->names[path] = inode;
  return std::make_unique<MemoryFile>(disk_, std::move(inode), path, options, this, clock_, [this] {
    completed_.fetch_add(1, std::memory_order_relaxed);
    signal_.notify();
  });
}

Result<void> MemoryStorage::rename(const std::string& from, const std::string& to) {
  std::lock_guard lock(disk_->mutex);
  const auto found = disk_->names.find(from);
  if (found == disk_->names.end())
    return fail(Code::kNotFound, Scope::kEndpoint, "file '{}': no such file on this disk", from);
  if (from == to) return {};
  disk_->names[to] = std::move(found->second);
  disk_->names.erase(found);
  return {};
}

Result<void> MemoryStorage::remove(const std::string& path) {
  std::lock_guard lock(disk_->mutex);
  if (disk_->names.erase(path) == 1) return {};
  return fail(Code::kNotFound, Scope::kEndpoint, "file '{}': no such file on this disk", path);
}

Result<std::vector<std::string>> MemoryStorage::list(const std::string& folder) {
  const std::string prefix = folder.empty() ? std::string() : without_slash(folder) + (folder == "/" ? "" : "/");
  std::lock_guard lock(disk_->mutex);
  std::set<std::string> names;
  for (auto i = disk_->names.lower_bound(prefix); i != disk_->names.end() && i->first.starts_with(prefix); ++i)
    names.insert(i->first.substr(prefix.size(), i->first.find('/', prefix.size()) - prefix.size()));
  if (names.empty() && folder.size() > 1)
    return fail(Code::kNotFound, Scope::kEndpoint, "folder '{}': nothing in it", folder);
  return std::vector<std::string>(names.begin(), names.end());
}

Result<void> MemoryStorage::sync_folder(const std::string& folder, Deadline deadline) {
  if (clock_.now() >= deadline)
    return fail(Code::kDeadlineExceeded, "folder '{}': the deadline had passed before it was synced", folder);
  const std::string wanted = without_slash(folder);
  std::lock_guard lock(disk_->mutex);
  std::erase_if(disk_->synced_names, [&](const auto& entry) { return folder_of(entry.first) == wanted; });
  for (const auto& [path, inode] : disk_->names)
    if (folder_of(path) == wanted) disk_->synced_names[path] = inode;
  return {};
}

}  // namespace

std::unique_ptr<Storage> open_memory_storage(const StorageContext& context, std::shared_ptr<MemoryDisk> disk) {
  const std::shared_ptr<Contents> contents = disk == nullptr ? MemoryDisk(kDiskBytes).contents() : disk->contents();
  return std::make_unique<MemoryStorage>(context.clock, contents);
}

}  // namespace towline::storage
