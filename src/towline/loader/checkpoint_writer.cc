#include "towline/loader/checkpoint_writer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace towline::loader {

namespace {

constexpr Bytes kBufferBytes = MiB(8);
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kTemporarySuffix = ".part";

/// Memory that is being filled or written.
struct Buffer {
  std::shared_ptr<std::byte> bytes;
  std::shared_ptr<const storage::StorageRegion> region;
  Completion write;  // invalid: free
  Bytes submitted;   // by that write
};

/// One file under its temporary name. What is appended is written behind the caller's back, two buffers deep, past the
/// page cache where the file allows it: filling the cache costs more than the disk, and pushes out what is in use.
class FileWriter {
 public:
  FileWriter(Clock& clock, storage::Storage& storage, std::array<Buffer, 2>& buffers, Deadline deadline)
      : clock_(clock), storage_(storage), buffers_(buffers), deadline_(deadline) {}
  // The buffers are used again by the next file, also after a failure.
  ~FileWriter() { file_.reset(); }

  Result<void> open(const std::string& path, Bytes bytes);
  /// Room of at least one byte in the buffer at hand; committed by `advance`.
  Result<std::span<std::byte>> room();
  Result<void> advance(size_t bytes);
  Result<void> append(std::string_view text);
  Result<void> close(bool sync);

 private:
  Result<void> reopen_buffered();
  Result<void> flush(size_t bytes);
  Result<void> settle(Buffer& buffer);
  Buffer& current() { return buffers_[turn_ % 2]; }

  Clock& clock_;
  storage::Storage& storage_;
  std::array<Buffer, 2>& buffers_;
  const Deadline deadline_;
  std::string path_;
  std::unique_ptr<storage::File> file_;
  size_t turn_ = 0;
  size_t filled_ = 0;
  Bytes written_;
};

Result<void> FileWriter::open(const std::string& path, Bytes bytes) {
  path_ = path;
  storage::OpenOptions options{
      .write = true, .create = true, .truncate = true, .direct = true, .exclusive_lock = true, .reserve = bytes};
  auto opened = storage_.open(path, options);
  if (!opened.has_value() && opened.error().code == Code::kUnimplemented) {  // a file system that cannot reserve
    options.reserve = Bytes(0);
    opened = storage_.open(path, options);
  }
  file_ = TOWLINE_TRY(std::move(opened));
  return {};
}

Result<void> FileWriter::reopen_buffered() {
  for (Buffer& buffer : buffers_) TOWLINE_TRY(settle(buffer));
  file_.reset();
  file_ = TOWLINE_TRY(storage_.open(path_, {.write = true, .exclusive_lock = true}));
  return {};
}

Result<void> FileWriter::settle(Buffer& buffer) {
  if (!buffer.write.valid()) return {};
  const Completion write = std::exchange(buffer.write, Completion());
  TOWLINE_TRY(storage::await(clock_, storage_, write, deadline_, fmt::format("file '{}': a write", path_)));
  if (write.moved(0) == buffer.submitted) return {};
  return fail(Code::kDataLoss, "file '{}': {} of {} bytes were written; is the disk full?", path_, write.moved(0),
              buffer.submitted);
}

Result<std::span<std::byte>> FileWriter::room() {
  if (filled_ == 0) TOWLINE_TRY(settle(current()));
  return std::span(current().bytes.get() + filled_, kBufferBytes.size() - filled_);
}

Result<void> FileWriter::advance(size_t bytes) {
  filled_ += bytes;
  return filled_ == kBufferBytes.size() ? flush(filled_) : Result<void>();
}

// Starts the write of the first `bytes` of the buffer at hand. What is left of it moves to the front of the next one.
Result<void> FileWriter::flush(size_t bytes) {
  const storage::Segment segment{written_, current().region, Bytes(0), Bytes(bytes)};
  current().submitted = Bytes(bytes);
  current().write = TOWLINE_TRY(file_->submit(Direction::kWrite, std::span(&segment, 1), nullptr, deadline_));
  written_ += Bytes(bytes);
  const std::byte* const rest = current().bytes.get() + bytes;
  filled_ -= bytes;
  ++turn_;
  if (filled_ == 0) return {};
  TOWLINE_TRY(settle(current()));
  std::memcpy(current().bytes.get(), rest, filled_);
  return {};
}

Result<void> FileWriter::append(std::string_view text) {
  while (!text.empty()) {
    const std::span<std::byte> out = TOWLINE_TRY(room());
    const size_t part = std::min(out.size(), text.size());
    std::memcpy(out.data(), text.data(), part);
    text.remove_prefix(part);
    TOWLINE_TRY(advance(part));
  }
  return {};
}

Result<void> FileWriter::close(bool sync) {
  if (file_->path() == storage::DataPath::kDirect) {
    const size_t whole = round_down(Bytes(filled_), storage_.caps().offset_alignment).size();
    if (whole > 0) TOWLINE_TRY(flush(whole));
    if (filled_ > 0) TOWLINE_TRY(reopen_buffered());  // direct files take whole blocks only
  }
  if (filled_ > 0) TOWLINE_TRY(flush(filled_));
  for (Buffer& buffer : buffers_) TOWLINE_TRY(settle(buffer));
  if (sync) {
    const Completion synced = TOWLINE_TRY(file_->sync(storage::SyncKind::kAll, deadline_));
    TOWLINE_TRY(storage::await(clock_, storage_, synced, deadline_, fmt::format("file '{}': the sync", path_)));
  }
  file_.reset();
  return {};
}

/// One checkpoint on its way into a folder; what it made is removed with it unless it was kept.
class Writer {
 public:
  Writer(Clock& clock, storage::Storage& storage, const std::string& folder, const CheckpointWriterOptions& options)
      : clock_(clock), storage_(storage), folder_(folder), options_(options) {}
  ~Writer() {
    for (const std::string& path : made_) static_cast<void>(storage_.remove(path).has_value());
  }

  Result<WrittenCheckpoint> write(const std::vector<ShardPlan>& shards);

 private:
  Result<void> check_folder();
  Result<void> check_space(Bytes bytes);
  Result<void> allocate_buffers();
  Result<void> write_shard(const ShardPlan& shard);
  Result<void> write_tensor(FileWriter& writer, const PlannedTensor& planned);
  Result<void> write_index(const std::string& text);
  Result<void> publish();
  void note(Bytes bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_, total_);
  }
  std::string path_of(std::string_view name) const {
    return fmt::format("{}{}{}", folder_, folder_.ends_with('/') ? "" : "/", name);
  }
  Result<void> open_file(FileWriter& writer, std::string_view name, Bytes bytes);

  Clock& clock_;
  storage::Storage& storage_;
  const std::string& folder_;
  const CheckpointWriterOptions& options_;
  std::array<Buffer, 2> buffers_;
  std::vector<std::string> stale_;  // what a replaced checkpoint leaves that this one has not
  std::vector<std::string> names_;  // of the files, in the order they get them
  std::vector<std::string> made_;   // to remove
  Bytes done_;
  Bytes total_;
};

bool is_checkpoint_file(std::string_view name) { return name.ends_with(".safetensors") || name == kIndexName; }

Result<void> Writer::check_folder() {
  for (std::string& name : TOWLINE_TRY(storage_.list(folder_))) {
    if (!is_checkpoint_file(name)) continue;
    if (!options_.replace)
      return fail(Code::kAlreadyExists,
                  "folder '{}': holds a checkpoint ('{}'); use an empty folder or ask to replace it", folder_, name);
    stale_.push_back(std::move(name));
  }
  return {};
}

Result<void> Writer::check_space(Bytes bytes) {
  const Bytes free = TOWLINE_TRY(storage_.free_space(folder_));
  if (bytes <= free) return {};
  return fail(Code::kResourceExhausted,
              "folder '{}': the checkpoint needs {}, {} are free; free some space or use another disk", folder_,
              to_string(bytes), to_string(free));
}

Result<void> Writer::allocate_buffers() {
  for (Buffer& buffer : buffers_) {
    buffer.bytes.reset(static_cast<std::byte*>(std::aligned_alloc(4096, kBufferBytes.size())), &std::free);
    if (buffer.bytes == nullptr)
      return fail(Code::kResourceExhausted, Scope::kProcess, "no memory for {}", kBufferBytes);
    buffer.region = TOWLINE_TRY(storage_.register_region(
        device::RegionSlice::whole(device::borrow_host_memory(buffer.bytes.get(), kBufferBytes, buffer.bytes))));
  }
  return {};
}

// Ours to remove only once it is open: before, it may be locked by another writer.
Result<void> Writer::open_file(FileWriter& writer, std::string_view name, Bytes bytes) {
  const std::string path = path_of(fmt::format("{}{}", name, kTemporarySuffix));
  TOWLINE_TRY(writer.open(path, bytes));
  names_.emplace_back(name);
  made_.push_back(path);
  return {};
}

Result<void> Writer::write_tensor(FileWriter& writer, const PlannedTensor& planned) {
  const uint64_t bytes = TOWLINE_TRY(planned_bytes(planned))
  .count();
  for (uint64_t done = 0; done < bytes;) {
    const std::span<std::byte> out = TOWLINE_TRY(writer.room());
    const size_t part = std::min<uint64_t>(out.size(), bytes - done);
    fill_contents(planned, options_.seed, done, out.first(part));
    TOWLINE_TRY(writer.advance(part));
    done += part;
    note(Bytes(part));
  }
  return {};
}

Result<void> Writer::write_shard(const ShardPlan& shard) {
  FileWriter writer(clock_, storage_, buffers_, options_.deadline);
  TOWLINE_TRY(open_file(writer, shard.name, shard.file_bytes()));
  TOWLINE_TRY(writer.append(shard.header));
  note(Bytes(shard.header.size()));
  for (const PlannedTensor& planned : shard.tensors) TOWLINE_TRY(write_tensor(writer, planned));
  return writer.close(options_.sync);
}

Result<void> Writer::write_index(const std::string& text) {
  FileWriter writer(clock_, storage_, buffers_, options_.deadline);
  TOWLINE_TRY(open_file(writer, kIndexName, Bytes(text.size())));
  TOWLINE_TRY(writer.append(text));
  note(Bytes(text.size()));
  return writer.close(options_.sync);
}

// A reader finds either no index or one whose shards are all there: the old index goes first, the new one comes last.
Result<void> Writer::publish() {
  for (auto name = stale_.rbegin(); name != stale_.rend(); ++name)
    if (*name == kIndexName) TOWLINE_TRY(storage_.remove(path_of(*name)));
  for (size_t i = 0; i < names_.size(); ++i) {
    TOWLINE_TRY(storage_.rename(made_[i], path_of(names_[i])));
    made_[i] = path_of(names_[i]);
  }
  for (const std::string& name : stale_)
    if (name != kIndexName && std::find(names_.begin(), names_.end(), name) == names_.end())
      TOWLINE_TRY(storage_.remove(path_of(name)));
  return options_.sync ? storage_.sync_folder(folder_, options_.deadline) : Result<void>();
}

Result<WrittenCheckpoint> Writer::write(const std::vector<ShardPlan>& shards) {
  TOWLINE_TRY(check_folder());
  const std::string index = shards.size() > 1 ? index_text(shards) : std::string();
  total_ = Bytes(index.size());
  for (const ShardPlan& shard : shards) total_ += shard.file_bytes();
  TOWLINE_TRY(check_space(total_));
  TOWLINE_TRY(allocate_buffers());
  WrittenCheckpoint written;
  written.bytes = total_;
  for (const ShardPlan& shard : shards) {
    TOWLINE_TRY(write_shard(shard));
    written.tensors += shard.tensors.size();
  }
  if (!index.empty()) TOWLINE_TRY(write_index(index));
  TOWLINE_TRY(publish());
  written.paths = std::exchange(made_, {});
  return written;
}

}  // namespace

Result<WrittenCheckpoint> write_checkpoint(Clock& clock, storage::Storage& storage, const std::string& folder,
                                           const CheckpointPlan& plan, const CheckpointWriterOptions& options) {
  const std::vector<ShardPlan> shards = TOWLINE_TRY(cut_into_shards(plan, options.shards));
  return Writer(clock, storage, folder, options).write(shards);
}

}  // namespace towline::loader
