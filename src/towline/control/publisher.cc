#include "towline/control/publisher.h"

#include <algorithm>
#include <stop_token>
#include <utility>

#include "towline/base/text.h"

namespace towline::control {
namespace {

/// Whether asking again changes nothing.
bool is_for_good(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kAlreadyExists:
    case Code::kPermissionDenied:
    case Code::kResourceExhausted:  // larger than a message
    case Code::kFailedPrecondition:
    case Code::kOutOfRange:
    case Code::kUnimplemented:
    case Code::kUnauthenticated:
      return true;
    default:
      return false;
  }
}

}  // namespace

Publisher::Publisher(Metadata& metadata, Clock& clock, LogSink& log, SourceIdentity identity, std::string worker_id,
                     PublisherHooks hooks, PublisherOptions options)
    : metadata_(metadata),
      clock_(clock),
      log_(log, "publisher"),
      identity_(std::move(identity)),
      worker_id_(std::move(worker_id)),
      hooks_(std::move(hooks)),
      options_(options) {
  TOWLINE_CHECK(hooks_.record);
}

Publisher::~Publisher() { stop(); }

void Publisher::start() {
  give_up_at_ = deadline_after(clock_, options_.publish_timeout);
  task_ = clock_.spawn("publisher", [this](std::stop_token stop) { run(std::move(stop)); });
}

void Publisher::stop() {
  task_.request_stop();
  task_.join();
  if (std::exchange(finished_, true)) return;
  if (source_ && ready_sent_ && !stale_sent_) {
    const auto said = send(SourceStatus::kStale);  // best effort: the reaper finds us if this is lost
    if (!said) log_.debug("stale not said: {}", to_string(said.error()));
  }
  clean_up();
  if (phase() != PublisherPhase::kGaveUp) set_phase(PublisherPhase::kStopped);
}

void Publisher::run(std::stop_token stop) {
  Signal stopped;
  const std::stop_callback wake(stop, [&stopped] { stopped.notify(); });
  while (!stop.stop_requested() && phase() != PublisherPhase::kGaveUp) {
    tick();
    clock_.wait(stopped, 0, deadline_after(clock_, pause()));
  }
}

Nanoseconds Publisher::pause() const {
  return source_ ? options_.interval : std::min(options_.interval, options_.ready_poll_max);
}

void Publisher::tick() {
  if (!source_) {
    if (clock_.now() >= give_up_at_) return give_up(too_late());
    if (hooks_.ready && !hooks_.ready()) return;
    const auto published = publish();
    note(published, "publish");
    if (!published) {
      const Code code = published.error().code;
      const bool is_taken = code == Code::kAlreadyExists;
      if (is_taken || (!was_published_ && is_for_good(code))) give_up(published.error());
      return;
    }
  }
  if (hooks_.healthy && !hooks_.healthy()) return say_unhealthy();
  const auto sent = beat();
  note(sent, "heartbeat");
  if (!sent && sent.error().code == Code::kAlreadyExists) give_up(sent.error());
}

Error Publisher::too_late() const {
  std::lock_guard lock(mutex_);
  return fail(Code::kFailedPrecondition, "not published within {} s: {}",
              std::chrono::duration_cast<std::chrono::seconds>(options_.publish_timeout).count(),
              last_error_ ? last_error_->message : std::string("it was never ready"));
}

void Publisher::give_up(const Error& why) {
  log_.error("worker {}: given up: {}", escape_control(worker_id_), escape_control(to_string(why)));
  ready_sent_ = false;  // the record is not ours to withdraw
  {
    std::lock_guard lock(mutex_);
    gave_up_because_ = why;
  }
  set_phase(PublisherPhase::kGaveUp);
  if (hooks_.gave_up) hooks_.gave_up(why);
  clean_up();
}

void Publisher::clean_up() {
  if (std::exchange(cleaned_up_, true)) return;
  if (hooks_.cleanup) hooks_.cleanup();
}

Result<void> Publisher::publish() {
  const WorkerRecord record = TOWLINE_TRY(hooks_.record());
  const auto published =
      TOWLINE_TRY(metadata_.publish(identity_, record, worker_id_, deadline_after(clock_, options_.publish_deadline)));
  rank_ = record.rank;
  source_ = published;
  was_published_ = true;
  if (hooks_.published) hooks_.published(published);
  return {};
}

Result<void> Publisher::send(SourceStatus status) {
  const Deadline deadline = deadline_after(clock_, options_.heartbeat_deadline);
  return metadata_.update_status(source_->source_id, worker_id_, rank_, status, deadline);
}

/// READY. A server that has lost the record gets it again at once.
Result<void> Publisher::beat() {
  auto sent = send(SourceStatus::kReady);
  if (!sent && sent.error().code == Code::kNotFound) {
    log_.warning("worker {}: the server lost the record, publishing again", worker_id_);
    source_.reset();
    give_up_at_ = deadline_after(clock_, options_.publish_timeout);
    TOWLINE_TRY(publish());
    sent = send(SourceStatus::kReady);
  }
  TOWLINE_TRY(std::move(sent));
  if (stale_sent_) log_.info("worker {}: healthy again", worker_id_);
  ready_sent_ = true;
  stale_sent_ = false;
  set_phase(PublisherPhase::kPublished);
  return {};
}

void Publisher::say_unhealthy() {
  if (!ready_sent_ || stale_sent_) return;
  log_.warning("worker {}: unhealthy, withdrawn", worker_id_);
  const auto sent = send(SourceStatus::kStale);
  note(sent, "withdraw");
  stale_sent_ = sent.has_value();  // else again at the next tick
}

/// Logs a failure when it changes, not at each tick.
void Publisher::note(const Result<void>& result, std::string_view doing) {
  const std::string text = result ? std::string() : to_string(result.error());
  if (!text.empty() && text != last_failure_logged_) log_.warning("worker {}: {}: {}", worker_id_, doing, text);
  last_failure_logged_ = text;
  {
    std::lock_guard lock(mutex_);
    last_error_ = result ? std::nullopt : std::optional(result.error());
  }
  changed_.notify();
}

void Publisher::set_phase(PublisherPhase phase) {
  {
    std::lock_guard lock(mutex_);
    phase_ = phase;
    if (phase == PublisherPhase::kPublished) announced_ = source_;
  }
  changed_.notify();
}

PublisherPhase Publisher::phase() const {
  std::lock_guard lock(mutex_);
  return phase_;
}

Result<PublishedSource> Publisher::wait_published(Deadline deadline) {
  for (;;) {
    const uint64_t seen = changed_.count();
    std::optional<Error> cause;
    {
      std::lock_guard lock(mutex_);
      if (phase_ == PublisherPhase::kPublished) return *announced_;
      cause = last_error_;
      if (phase_ == PublisherPhase::kGaveUp) {
        return fail(gave_up_because_->code, gave_up_because_->scope, "worker '{}': {}", worker_id_,
                    gave_up_because_->message);
      }
      if (phase_ != PublisherPhase::kWaiting) {
        return fail(Code::kFailedPrecondition, "worker '{}': its publisher has stopped; {}", worker_id_,
                    cause ? cause->message : std::string("it was never ready"));
      }
    }
    if (!clock_.wait(changed_, seen, deadline)) {
      return fail(Code::kDeadlineExceeded, "worker '{}': not published in time: {}", worker_id_,
                  cause ? cause->message : std::string("it is not ready"));
    }
  }
}

}  // namespace towline::control
