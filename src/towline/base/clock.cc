#include "towline/base/clock.h"

#include <condition_variable>
#include <system_error>
#include <thread>

#include "towline/base/check.h"

namespace towline {

Signal::~Signal() {
  std::lock_guard lock(mutex_);  // lets a notify() that is on its way out of the mutex finish first
  TOWLINE_CHECK(waiters_ == nullptr);
}

uint64_t Signal::count() const noexcept { return count_.load(std::memory_order_acquire); }

void Signal::notify() noexcept {
  std::lock_guard lock(mutex_);
  count_.fetch_add(1, std::memory_order_acq_rel);
  for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next_) waiter->wake();
}

bool Signal::add(Waiter& waiter, uint64_t seen) const noexcept {
  std::lock_guard lock(mutex_);
  if (count_.load(std::memory_order_relaxed) != seen) return false;
  waiter.previous_ = nullptr;
  waiter.next_ = waiters_;
  if (waiters_ != nullptr) waiters_->previous_ = &waiter;
  waiters_ = &waiter;
  return true;
}

void Signal::remove(Waiter& waiter) const noexcept {
  std::lock_guard lock(mutex_);
  if (waiter.next_ != nullptr) waiter.next_->previous_ = waiter.previous_;
  (waiter.previous_ != nullptr ? waiter.previous_->next_ : waiters_) = waiter.next_;
}

Task& Task::operator=(Task&& other) noexcept {
  if (this != &other) {
    request_stop();
    join();
    body_ = std::move(other.body_);
  }
  return *this;
}

Task::~Task() {
  request_stop();
  join();
}

void Task::request_stop() noexcept {
  if (body_ != nullptr) body_->request_stop();
}

void Task::join() noexcept {
  if (body_ != nullptr) body_->join();
}

namespace {

class ThreadBody final : public Task::Body {
 public:
  ThreadBody(const std::string& name, std::function<void(std::stop_token)> body) : thread_(std::move(body)) {
    pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());  // the kernel keeps 15 characters
  }
  void request_stop() noexcept override { thread_.request_stop(); }
  void join() noexcept override {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::jthread thread_;
};

class SystemWaiter final : public Signal::Waiter {
 public:
  void wake() noexcept override {
    std::lock_guard lock(mutex_);
    woken_ = true;
    condition_.notify_one();
  }
  bool sleep(Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (deadline == kNoDeadline) {
      condition_.wait(lock, [this] { return woken_; });
      return true;
    }
    return condition_.wait_until(lock, deadline, [this] { return woken_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool woken_ = false;  // guarded by mutex_
};

class SystemClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }

  bool wait(const Signal& signal, uint64_t seen, Deadline deadline) override {
    if (deadline != kNoDeadline && now() >= deadline) return false;
    if (signal.count() != seen) return true;
    SystemWaiter waiter;
    if (!signal.add(waiter, seen)) return true;
    const bool woken = waiter.sleep(deadline);
    signal.remove(waiter);
    return woken;
  }

  Task spawn(std::string name, std::function<void(std::stop_token)> body) override {
    try {
      return Task(std::make_unique<ThreadBody>(name, std::move(body)));
    } catch (const std::system_error& error) {
      // As with host memory: a process without it cannot go on, but it says what it lacked.
      constexpr bool kThreadStarted = false;
      TOWLINE_CHECK(kThreadStarted, name, error.what(), "raise the limit of processes or of address space (ulimit)");
    }
  }
};

}  // namespace

std::unique_ptr<Clock> make_system_clock() { return std::make_unique<SystemClock>(); }

Deadline deadline_after(const Clock& clock, Nanoseconds span) {
  const TimePoint now = clock.now();
  return span > kNoDeadline - now ? kNoDeadline : now + span;
}

void sleep_until(Clock& clock, Deadline deadline) {
  const Signal never;
  clock.wait(never, 0, deadline);
}

}  // namespace towline
