// When the progress thread sleeps, and what wakes it.

#include <poll.h>
#include <ucp/api/ucp.h>

#include <algorithm>

#include "towline/transport/ucx/engine.h"

namespace towline::transport::ucx {
namespace {

/// Turns without a result before it sleeps: some 10 us, about what a sleep and a wake cost. A peer that shares our
/// cores needs them to answer, so more would slow it down.
constexpr unsigned kIdleTurnsMax = 50;
/// A pace is kept in steps of this, so that neither wake-ups nor bursts are many.
constexpr double kPaceStepSeconds = 0.002;
/// Longest sleep: how late a death that nothing reports is seen.
constexpr Nanoseconds kSleepMax = std::chrono::seconds(1);
/// How often peers are looked at while something is under way.
constexpr Nanoseconds kWatchInterval = std::chrono::milliseconds(2);

timespec span_until(TimePoint now, Deadline until) {
  // Never `until - now` of the far ends, which overflows.
  const Nanoseconds left = until <= now ? Nanoseconds::zero() : until >= now + kSleepMax ? kSleepMax : until - now;
  return {static_cast<time_t>(left.count() / 1'000'000'000), static_cast<long>(left.count() % 1'000'000'000)};
}

}  // namespace

TimePoint Engine::pace_time(const Operation& operation) {
  if (operation.options.pace_bytes_per_s <= 0) return TimePoint::min();
  const double due = static_cast<double>(operation.issued.count()) / operation.options.pace_bytes_per_s;
  if (due < kPaceStepSeconds) return operation.started;
  const std::chrono::duration<double> after(std::min(due, 1e9));
  return operation.started + std::chrono::duration_cast<Nanoseconds>(after);
}

Bytes Engine::pace_step(const Operation& operation) {
  if (operation.options.pace_bytes_per_s <= 0) return kBlockBytes;
  const double bytes = operation.options.pace_bytes_per_s * kPaceStepSeconds;
  return Bytes(static_cast<uint64_t>(std::clamp<double>(bytes, 4096, static_cast<double>(kBlockBytes.count()))));
}

TimePoint Engine::next_event() const {
  TimePoint next = stop_until_;
  for (const auto& operation : active_) {
    if (!operation->unsettled) next = std::min(next, operation->options.deadline);
    if (!operation->error && !operation->all_issued() && pace_time(*operation) > now_)
      next = std::min(next, pace_time(*operation));
  }
  for (const auto& [peer, connection] : connections_) {
    next = std::min(next, connection->close_deadline());
    if (connection->wants_watch()) next = std::min(next, now_ + kWatchInterval);
  }
  return next;
}

void Engine::sleep() {
  if (++idle_turns_ < kIdleTurnsMax) return;
  const ucs_status_t armed = ucp_worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) return;
  if (!inbox_->begin_sleep()) return;
  wait_for_events(next_event());
  inbox_->end_sleep();
  idle_turns_ = 0;
}

/// Who copies all the time never sleeps, and would not see that the peer has died.
void Engine::watch_while_busy() {
  if (active_.empty() || now_ - watched_ < kWatchInterval) return;
  wait_for_events(TimePoint::min());
  for (const auto& [peer, connection] : connections_)
    if (connection->wants_watch()) connection->watch_hello();
}

void Engine::wait_for_events(Deadline until) {
  int worker_fd = -1;
  ucp_worker_get_efd(worker_, &worker_fd);
  std::vector<pollfd> fds = {{inbox_->fd(), POLLIN, 0}, {worker_fd, POLLIN, 0}};
  std::vector<Connection*> watched;
  for (const auto& [peer, connection] : connections_) {
    if (connection->process_fd() < 0) continue;
    fds.push_back({connection->process_fd(), POLLIN, 0});
    watched.push_back(connection.get());
  }
  watched_ = now_;
  const timespec span = span_until(clock_.now(), until);
  if (ppoll(fds.data(), fds.size(), &span, nullptr) <= 0) return;
  for (size_t i = 0; i < watched.size(); ++i)
    if (fds[i + 2].revents != 0) watched[i]->process_ended();
}

}  // namespace towline::transport::ucx
