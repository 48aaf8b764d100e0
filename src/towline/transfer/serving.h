#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "towline/control/metadata.h"
#include "towline/control/publisher.h"
#include "towline/control/server.h"
#include "towline/transfer/session.h"

namespace towline::transfer {

struct ServingOptions {
  control::SourceIdentity identity;
  Rank rank;
  std::string worker_id;
  std::string accelerator;
  control::PublisherOptions publisher;
  /// Once, on the publisher's task, when it cannot serve on: lost() says why.
  std::function<void()> on_lost = {};
  std::string worker_listen = "127.0.0.1:0";  ///< where GetTensorManifest is answered
  std::string worker_advertise = {};          ///< how others reach it (control::ServerOptions)
};

/// Offers what a session has registered, until it is dropped: a heartbeat at the metadata server and an endpoint of its
/// own for the manifest. Dropping it says STALE; the memory stays registered until the session lets it go. What is
/// registered must not change meanwhile: drop it first.
class Serving {
 public:
  /// Returns once the server lists us as READY. `session` and `metadata` outlive it. Errors: what the publication was
  /// refused with, kFailedPrecondition where nothing is registered and kAlreadyExists where another process serves
  /// under the worker id among them; kDeadlineExceeded.
  static Result<std::unique_ptr<Serving>> start(Session& session, control::Metadata& metadata, ServingOptions options,
                                                Deadline deadline);
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;
  ~Serving();

  const control::PublishedSource& source() const { return source_; }
  /// Why it does not serve any more. Errors: kAlreadyExists - its record is another process's now; what publishing was
  /// refused with. Thread-safe.
  Result<void> lost() const;
  const std::string& worker_endpoint() const { return endpoint_; }

 private:
  Serving(Session& session, ServingOptions options);
  void lose(const Error& why);
  control::WorkerRecord record() const;
  void answer_as(const control::PublishedSource& source);

  Session& session_;
  ServingOptions options_;
  std::string endpoint_;
  control::PublishedSource source_;
  std::unique_ptr<control::WorkerServer> server_;
  mutable std::mutex mutex_;
  std::optional<Error> lost_;  // guarded by mutex_
  std::unique_ptr<control::Publisher> publisher_;
};

}  // namespace towline::transfer
