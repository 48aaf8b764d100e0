#include "stop.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <thread>

namespace towline::cli {
namespace {

/// What undoing in order may take: `make-checkpoint` and `bench` delete gigabytes.
constexpr timespec kGrace{.tv_sec = 0, .tv_nsec = 700'000'000};
/// Past the deadline of any verb, and still far from the end of time: sums with a span do not overflow.
constexpr Nanoseconds kPastEveryDeadline = Nanoseconds(int64_t{1} << 62);
constexpr int kCutShort = 1;

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

int next_signal() {
  const sigset_t signals = stop_signals();
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  return signal;
}

/// 0: none came in time.
int next_signal_within(const timespec& span) {
  const sigset_t signals = stop_signals();
  return std::max(0, sigtimedwait(&signals, nullptr, &span));
}

/// As if we had never taken the signal: who waits for the process sees what ended it.
[[noreturn]] void die_of(int signal) {
  ::signal(signal, SIG_DFL);
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  raise(signal);
  _exit(kCutShort);
}

class Waiter final : public Signal::Waiter {
 public:
  void wake() noexcept override {
    std::lock_guard lock(mutex_);
    woken_ = true;
    condition_.notify_one();
  }
  void sleep(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto woken = [this] { return woken_; };
    if (deadline == kNoDeadline)
      condition_.wait(lock, woken);
    else
      condition_.wait_until(lock, deadline, woken);
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool woken_ = false;  // guarded by mutex_
};

}  // namespace

/// The system's, until expire(): then its time jumps past every deadline that there is, and runs on from there. Waits
/// without a deadline go on.
class Stop::StoppableClock final : public Clock {
 public:
  TimePoint now() const override { return real_->now() + (is_expired() ? kPastEveryDeadline : Nanoseconds(0)); }

  bool wait(const Signal& signal, uint64_t seen, Deadline deadline) override {
    if (!is_expired()) {
      if (deadline != kNoDeadline && real_->now() >= deadline) return false;
      sleep(signal, seen, deadline);
      if (signal.count() != seen) return true;
      if (!is_expired()) return false;
    }
    return real_->wait(signal, seen, deadline == kNoDeadline ? deadline : deadline - kPastEveryDeadline);
  }

  Task spawn(std::string name, std::function<void(std::stop_token)> body) override {
    return real_->spawn(std::move(name), std::move(body));
  }

  void expire() { expired_.notify(); }

 private:
  bool is_expired() const { return expired_.count() != 0; }

  /// Until signal.count() != seen, the deadline, or expire().
  void sleep(const Signal& signal, uint64_t seen, Deadline deadline) const {
    Waiter waiter;
    if (!signal.add(waiter, seen)) return;
    Forward forward(waiter);
    if (expired_.add(forward, 0)) {
      waiter.sleep(deadline);
      expired_.remove(forward);
    }
    signal.remove(waiter);
  }

  /// A waiter is on one list; this one wakes it from another.
  class Forward final : public Signal::Waiter {
   public:
    explicit Forward(Signal::Waiter& to) : to_(to) {}
    void wake() noexcept override { to_.wake(); }

   private:
    Signal::Waiter& to_;
  };

  const std::unique_ptr<Clock> real_ = make_system_clock();
  Signal expired_;
};

Stop::Stop(std::function<void(Stop&)> report)
    : owned_clock_(std::make_unique<StoppableClock>()), clock_(owned_clock_.get()), report_(std::move(report)) {}

void Stop::block() {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

Stop& Stop::start(std::function<void(Stop&)> report) {
  static Stop* const stop = new Stop(std::move(report));
  std::thread([] { stop->watch(); }).detach();
  stop->watching_.wait(false);
  return *stop;
}

std::string_view Stop::signal_name() const { return signal_ == SIGINT ? "SIGINT" : "SIGTERM"; }

bool Stop::begin_serving() {
  State expected = State::kWorking;
  return state_.compare_exchange_strong(expected, State::kServing);
}

void Stop::wait() { clock_->wait(ended_, 0, kNoDeadline); }

void Stop::watch() {
  // This thread's heap is made before the verb starts: it takes the lock on the process's memory, which a verb that
  // fills gigabytes holds for seconds.
  heap_ = std::make_unique<std::byte[]>(1);
  watching_ = true;
  watching_.notify_one();
  signal_ = next_signal();
  State expected = State::kWorking;
  const bool is_cut = state_.compare_exchange_strong(expected, State::kCut);
  if (is_cut) owned_clock_->expire();
  ended_.notify();
  const int second = is_cut ? next_signal_within(kGrace) : next_signal();
  undo();
  if (second != 0) die_of(second);
  if (!finish()) die_of(next_signal());  // the verb ends by itself right now
  report_(*this);
  _exit(kCutShort);
}

void Stop::undo() {
  std::lock_guard lock(mutex_);
  for (const auto& [id, undo] : undos_) undo();
}

Stop::Guard Stop::guard(std::function<void()> undo) {
  std::lock_guard lock(mutex_);
  undos_.emplace(++next_id_, std::move(undo));
  return Guard(*this, next_id_);
}

Stop::Guard::~Guard() {
  if (stop_ == nullptr) return;
  std::lock_guard lock(stop_->mutex_);
  stop_->undos_.erase(id_);
}

}  // namespace towline::cli
