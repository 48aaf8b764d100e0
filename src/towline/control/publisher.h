#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "towline/base/log.h"
#include "towline/control/metadata.h"

namespace towline::control {

struct PublisherOptions {
  Nanoseconds interval = std::chrono::seconds(30);            ///< between heartbeats
  Nanoseconds ready_poll_max = std::chrono::seconds(5);       ///< between looks while not published yet
  Nanoseconds publish_timeout = std::chrono::seconds(1800);   ///< not published after this long: given up
  Nanoseconds publish_deadline = std::chrono::seconds(30);    ///< of one publish call
  Nanoseconds heartbeat_deadline = std::chrono::seconds(10);  ///< of one status call
};

/// What the publisher asks its owner, always on the publisher's own task. Empty functions: ready, healthy, nothing to
/// clean up.
struct PublisherHooks {
  std::function<bool()> ready;
  std::function<bool()> healthy;
  std::function<Result<WorkerRecord>()> record;  ///< required; asked again at each publication: keys may have changed
  std::function<void(const PublishedSource&)> published;  ///< after each publication, before READY is sent
  std::function<void()> cleanup;                          ///< once, at the end
  std::function<void(const Error&)> gave_up = {};         ///< once, when it ends by itself; before cleanup
};

enum class PublisherPhase : uint8_t { kWaiting, kPublished, kGaveUp, kStopped };

/// Publishes one worker when it is ready and then keeps it alive: READY at each interval, STALE once when it turns
/// unhealthy or stops, and published again when the server has lost the record. Gives up at once when the first
/// publication is refused for good (asking again would change nothing), and when another process has taken the record:
/// two that keep one record alive would send readers to memory that is not there. Runs as one task of the clock.
/// start() and stop() are its owner's, the rest is thread-safe. Source: transfer.md 7.5.
class Publisher {
 public:
  Publisher(Metadata& metadata, Clock& clock, LogSink& log, SourceIdentity identity, std::string worker_id,
            PublisherHooks hooks, PublisherOptions options = {});
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;
  /// Stops.
  ~Publisher();

  void start();
  /// Ends the task, says STALE if READY was ever said, cleans up. Lasts no longer than one call to the server and one
  /// hook. Nothing on a second call.
  void stop();

  PublisherPhase phase() const;
  /// Waits until it is published and READY was said. Errors: kDeadlineExceeded - with the last failure as the cause;
  /// what it was refused with; kFailedPrecondition - it was never ready in time, or was stopped.
  Result<PublishedSource> wait_published(Deadline deadline);

 private:
  void run(std::stop_token stop);
  void tick();
  Result<void> publish();
  Result<void> beat();
  Result<void> send(SourceStatus status);
  void say_unhealthy();
  void note(const Result<void>& result, std::string_view doing);
  void set_phase(PublisherPhase phase);
  void give_up(const Error& why);
  Error too_late() const;
  void clean_up();
  Nanoseconds pause() const;

  Metadata& metadata_;
  Clock& clock_;
  Logger log_;
  const SourceIdentity identity_;
  const std::string worker_id_;
  const PublisherHooks hooks_;
  const PublisherOptions options_;

  // The task's own, or the stopper's once the task has ended.
  TimePoint give_up_at_;
  std::optional<PublishedSource> source_;
  Rank rank_;
  bool was_published_ = false;
  bool ready_sent_ = false;
  bool stale_sent_ = false;
  bool finished_ = false;
  bool cleaned_up_ = false;
  std::string last_failure_logged_;

  mutable std::mutex mutex_;
  PublisherPhase phase_ = PublisherPhase::kWaiting;  // guarded by mutex_
  std::optional<PublishedSource> announced_;         // guarded by mutex_
  std::optional<Error> last_error_;                  // guarded by mutex_
  std::optional<Error> gave_up_because_;             // guarded by mutex_
  Signal changed_;
  Task task_;
};

}  // namespace towline::control
