#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "towline/base/clock.h"

namespace towline::cli {

/// How SIGINT and SIGTERM end this program.
///
/// While a verb works, the first signal moves the time of clock() past every deadline: what waits fails at once, and
/// each owner undoes its part on the way out. A verb that is not through a grace later (it is in the kernel, or in a
/// library that does not know our clock) is ended by the watching thread, which undoes what guard() was told. While it
/// serves, the first signal only ends wait(). A second signal undoes, and ends the process at once.
/// There is one, and it is never destroyed: the thread may need it until the process is gone.
class Stop {
 public:
  /// Keeps the signals for us. Before the process has a second thread.
  static void block();
  /// Starts to watch. `report` says why the verb was cut short, on the watching thread; at most once, and never when
  /// finish() was first.
  static Stop& start(std::function<void(Stop& stop)> report);

  /// What the verb waits with.
  Clock& clock() { return *clock_; }
  /// Whether a verb that works is to end.
  bool cut() const { return state_ == State::kCut; }
  std::string_view signal_name() const;

  /// From now on a signal is the orderly end. False: one came before.
  bool begin_serving();
  /// While serving: until a signal, or end().
  void wait();
  /// Ends wait() as a signal does; thread-safe.
  void end() { ended_.notify(); }

  /// The verb is through and says so itself. False: the watcher has said it, the process ends in a moment.
  bool finish() { return !said_.exchange(true); }

  /// Undoes something when the process ends without its owner; held by the owner until it has undone it itself.
  class Guard {
   public:
    Guard() = default;
    Guard(Stop& stop, uint64_t id) : stop_(&stop), id_(id) {}
    Guard(Guard&& other) noexcept : stop_(std::exchange(other.stop_, nullptr)), id_(other.id_) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard();

   private:
    Stop* stop_ = nullptr;
    uint64_t id_ = 0;
  };
  /// `undo` runs on the watching thread beside the verb, which may go on for a moment.
  [[nodiscard]] Guard guard(std::function<void()> undo);

 private:
  enum class State : uint8_t { kWorking, kServing, kCut };
  class StoppableClock;
  explicit Stop(std::function<void(Stop&)> report);
  void watch();
  void undo();

  std::unique_ptr<StoppableClock> owned_clock_;
  Clock* clock_;
  std::function<void(Stop&)> report_;
  std::unique_ptr<std::byte[]> heap_;  ///< of the watching thread, so that it has one
  std::atomic<bool> watching_{false};
  std::atomic<State> state_{State::kWorking};
  std::atomic<int> signal_{0};
  std::atomic<bool> said_{false};
  Signal ended_;

  std::mutex mutex_;
  std::map<uint64_t, std::function<void()>> undos_;  // guarded by mutex_
  uint64_t next_id_ = 0;                             // guarded by mutex_
};

}  // namespace towline::cli
