#include "towline/storage/faulty.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace towline::storage {

namespace {

/// An operation of the inner storage whose end is held back, changed or both.
struct Held {
  Completion inner;
  CompletionSource outer;
  size_t pieces;
  TimePoint due;
  std::function<void()> after;  // when the inner one is through and due
};

/// What is held of one file or all: shared by the files and the storage. Thread-safe.
class HeldList {
 public:
  explicit HeldList(Clock& clock) : clock_(clock) {}
  Completion add(Held held) {
    Completion completion = held.outer.completion();
    std::lock_guard lock(mutex_);
    held_.push_back(std::move(held));
    return completion;
  }
  /// Ends what is through and due; how many.
  size_t progress();
  bool empty() const {
    std::lock_guard lock(mutex_);
    return held_.empty();
  }

 private:
  std::vector<Held> take_due();
  Clock& clock_;
  mutable std::mutex mutex_;
  std::vector<Held> held_;  // guarded by mutex_
};

std::vector<Held> HeldList::take_due() {
  std::vector<Held> due;
  const TimePoint now = clock_.now();
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < held_.size();) {
    if (held_[i].due > now || !held_[i].inner.settled()) {
      ++i;
      continue;
    }
    due.push_back(std::move(held_[i]));
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return due;
}

size_t HeldList::progress() {
  std::vector<Held> due = take_due();
  for (Held& held : due) {
    if (held.after) held.after();
    for (size_t i = 0; i < held.pieces; ++i) held.outer.set_moved(i, held.inner.moved(i));
    held.outer.finish(*held.inner.result());
  }
  return due.size();
}

constexpr std::string_view kRefusedReason = "an injected fault: the medium refused a direct read; buffered";

Error crashed() { return {Code::kUnavailable, Scope::kProcess, "an injected fault: the process crashed"}; }

/// The error with which `rule` makes a call fail at once, if it does.
std::optional<Error> refusal(const std::optional<FaultRule>& rule) {
  if (!rule.has_value()) return std::nullopt;
  if (rule->kind == FaultKind::kCrash) return crashed();
  if (rule->kind == FaultKind::kRefuse) return rule->error;
  return std::nullopt;
}

class FaultyFile final : public File {
 public:
  FaultyFile(std::unique_ptr<File> inner, StorageFaults& faults, Clock& clock, std::shared_ptr<HeldList> held)
      : inner_(std::move(inner)), faults_(faults), clock_(clock), all_held_(std::move(held)) {}
  // Our requests are among the held ones: they are ended before the inner file goes.
  ~FaultyFile() override {
    while (pending_->load() > 0)
      if (all_held_->progress() == 0) sleep_until(clock_, deadline_after(clock_, std::chrono::microseconds(100)));
  }

  Result<Completion> submit(Direction direction, std::span<const Segment> segments, device::Stream* order,
                            Deadline deadline) override;
  Result<Completion> sync(SyncKind kind, Deadline deadline) override;
  Result<Bytes> size() override { return inner_->size(); }
  Result<FileStamp> stamp() override { return inner_->stamp(); }
  DataPath path() const override { return refused_ ? DataPath::kFallback : inner_->path(); }
  std::string_view path_reason() const override { return refused_ ? kRefusedReason : inner_->path_reason(); }

 private:
  Result<Completion> submit_changed(const FaultRule& rule, Direction direction, std::span<const Segment> segments,
                                    Deadline deadline);
  Result<Completion> submit_corrupt_write(std::span<const Segment> segments, std::byte* byte, Deadline deadline);
  Completion hold(Completion inner, size_t pieces, Nanoseconds delay, std::function<void()> after);

  const std::unique_ptr<File> inner_;
  StorageFaults& faults_;
  Clock& clock_;
  const std::shared_ptr<HeldList> all_held_;
  const std::shared_ptr<std::atomic<size_t>> pending_ = std::make_shared<std::atomic<size_t>>(0);
  std::atomic<bool> refused_{false};
};

Completion FaultyFile::hold(Completion inner, size_t pieces, Nanoseconds delay, std::function<void()> after) {
  pending_->fetch_add(1);
  Held held{.inner = inner,
            .outer = CompletionSource(pieces),
            .pieces = pieces,
            .due = deadline_after(clock_, delay),
            .after = {}};
  held.outer.on_cancel([inner]() mutable { inner.cancel(); });
  held.after = [pending = pending_, after = std::move(after)] {
    if (after) after();
    pending->fetch_sub(1);
  };
  return all_held_->add(std::move(held));
}

Result<Completion> FaultyFile::submit(Direction direction, std::span<const Segment> segments, device::Stream* order,
                                      Deadline deadline) {
  const auto rule = faults_.next(direction == Direction::kRead ? FaultCall::kRead : FaultCall::kWrite);
  if (const auto error = refusal(rule)) return *error;
  if (!rule.has_value() || order != nullptr || segments.empty())
    return inner_->submit(direction, segments, order, deadline);
  return submit_changed(*rule, direction, segments, deadline);
}

Result<Completion> FaultyFile::submit_changed(const FaultRule& rule, Direction direction,
                                              std::span<const Segment> segments, Deadline deadline) {
  if (rule.kind == FaultKind::kFail) return completed(rule.error, std::vector<Bytes>(segments.size()));
  if (rule.kind == FaultKind::kDirectRefused) refused_ = true;
  std::vector<Segment> changed(segments.begin(), segments.end());
  if (rule.kind == FaultKind::kShort) changed.back().bytes -= std::min(rule.bytes, changed.back().bytes);
  std::byte* byte = nullptr;
  if (rule.kind == FaultKind::kCorrupt && rule.bytes < changed.front().bytes)
    byte = changed.front().region->slice().host_view() + (changed.front().region_offset + rule.bytes).size();
  if (byte != nullptr && direction == Direction::kWrite) return submit_corrupt_write(segments, byte, deadline);
  Completion inner = TOWLINE_TRY(inner_->submit(direction, changed, nullptr, deadline));
  if (byte != nullptr) return hold(std::move(inner), segments.size(), rule.delay, [byte] { *byte ^= std::byte{0xff}; });
  return rule.kind == FaultKind::kDelay ? hold(std::move(inner), segments.size(), rule.delay, {}) : inner;
}

// The memory is the caller's: the byte is turned back when the write is through.
Result<Completion> FaultyFile::submit_corrupt_write(std::span<const Segment> segments, std::byte* byte,
                                                    Deadline deadline) {
  *byte ^= std::byte{0xff};
  Result<Completion> inner = inner_->submit(Direction::kWrite, segments, nullptr, deadline);
  if (!inner.has_value()) *byte ^= std::byte{0xff};
  if (!inner.has_value()) return inner;
  return hold(*inner, segments.size(), Nanoseconds(0), [byte] { *byte ^= std::byte{0xff}; });
}

Result<Completion> FaultyFile::sync(SyncKind kind, Deadline deadline) {
  const auto rule = faults_.next(FaultCall::kSync);
  if (const auto error = refusal(rule)) return *error;
  if (rule.has_value() && rule->kind == FaultKind::kFail) return completed(rule->error);
  Completion inner = TOWLINE_TRY(inner_->sync(kind, deadline));
  return rule.has_value() && rule->kind == FaultKind::kDelay ? hold(std::move(inner), 0, rule->delay, {}) : inner;
}

class FaultyStorage final : public Storage {
 public:
  FaultyStorage(Clock& clock, std::unique_ptr<Storage> inner, StorageFaults& faults)
      : clock_(clock), inner_(std::move(inner)), faults_(faults), caps_(inner_->caps()) {
    caps_.name = fmt::format("faulty({})", caps_.name);
    caps_.progresses_itself = false;
  }

  const StorageCaps& caps() const override { return caps_; }
  Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
    TOWLINE_TRY(pass(FaultCall::kOpen));
    auto file = TOWLINE_TRY(inner_->open(path, options));
    return std::make_unique<FaultyFile>(std::move(file), faults_, clock_, held_);
  }
  Result<std::shared_ptr<const StorageRegion>> register_region(device::RegionSlice slice) override {
    TOWLINE_TRY(pass(FaultCall::kRegister));
    return inner_->register_region(std::move(slice));
  }
  Result<void> rename(const std::string& from, const std::string& to) override {
    TOWLINE_TRY(pass(FaultCall::kRename));
    return inner_->rename(from, to);
  }
  Result<void> remove(const std::string& path) override {
    TOWLINE_TRY(pass(FaultCall::kRemove));
    return inner_->remove(path);
  }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    TOWLINE_TRY(pass(FaultCall::kList));
    return inner_->list(folder);
  }
  Result<Bytes> free_space(const std::string& folder) override {
    TOWLINE_TRY(pass(FaultCall::kFreeSpace));
    return inner_->free_space(folder);
  }
  Result<void> sync_folder(const std::string& folder, Deadline deadline) override {
    TOWLINE_TRY(pass(FaultCall::kSyncFolder));
    return inner_->sync_folder(folder, deadline);
  }
  size_t progress() override { return inner_->progress() + held_->progress(); }
  const Signal& signal() const override { return inner_->signal(); }

 private:
  /// A call without a completion: every rule but kDelay and the ones of data is an error of it.
  Result<void> pass(FaultCall call) {
    const auto rule = faults_.next(call);
    if (const auto error = refusal(rule)) return *error;
    if (rule.has_value() && rule->kind == FaultKind::kFail) return rule->error;
    if (rule.has_value() && rule->kind == FaultKind::kDelay) sleep_until(clock_, deadline_after(clock_, rule->delay));
    return {};
  }

  Clock& clock_;
  const std::unique_ptr<Storage> inner_;
  StorageFaults& faults_;
  StorageCaps caps_;
  const std::shared_ptr<HeldList> held_ = std::make_shared<HeldList>(clock_);
};

}  // namespace

Error no_space_fault() {
  return {Code::kResourceExhausted, Scope::kEndpoint, "an injected fault: no space left on device (28)"};
}

void StorageFaults::add(FaultRule rule) {
  std::lock_guard lock(mutex_);
  rules_.push_back(std::move(rule));
}

void StorageFaults::clear() {
  std::lock_guard lock(mutex_);
  rules_.clear();
  crashed_.reset();
  calls_ = {};
}

uint64_t StorageFaults::calls(FaultCall call) const {
  std::lock_guard lock(mutex_);
  return calls_[static_cast<size_t>(call)];
}

std::optional<FaultRule> StorageFaults::next(FaultCall call) {
  std::optional<FaultRule> hit;
  {
    std::lock_guard lock(mutex_);
    const uint64_t number = ++calls_[static_cast<size_t>(call)];
    if (crashed_.has_value()) return crashed_;
    for (const FaultRule& rule : rules_)
      if (rule.call == call && number >= rule.nth && number - rule.nth < rule.count) {
        hit = rule;
        break;
      }
    if (hit.has_value() && hit->kind == FaultKind::kCrash) crashed_ = hit;
  }
  if (hit.has_value() && hit->kind == FaultKind::kCrash && hit->action) hit->action();
  return hit;
}

std::unique_ptr<Storage> open_faulty_storage(const StorageContext& context, std::unique_ptr<Storage> inner,
                                             StorageFaults& faults) {
  return std::make_unique<FaultyStorage>(context.clock, std::move(inner), faults);
}

}  // namespace towline::storage
