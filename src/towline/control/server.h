#pragma once

#include <memory>
#include <string>

#include "towline/base/log.h"
#include "towline/base/metrics.h"
#include "towline/control/metadata.h"
#include "towline/control/worker_manifest.h"

namespace towline::control {

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  ///< HOST:PORT; port 0 takes a free one
  std::string advertise = {};      ///< of a WorkerServer: how others reach it, HOST or HOST:PORT; empty: as it listens
  int threads_max = 32;            ///< calls in progress at once; more wait
  MetricsSink* metrics = nullptr;  ///< of a MetadataServer: counts its calls (control_metrics.h); null: not counted
};

/// P2pService over any Metadata, and grpc.health.v1. Serves from start() until destroyed.
class MetadataServer {
 public:
  /// `metadata` and `clock` (deadlines of calls) outlive it. Errors: kFailedPrecondition - the port is in use;
  /// kInvalidArgument - `listen` is no address of this machine; kPermissionDenied.
  static Result<std::unique_ptr<MetadataServer>> start(const ServerOptions& options, Metadata& metadata, Clock& clock,
                                                       LogSink& log);
  MetadataServer(const MetadataServer&) = delete;
  MetadataServer& operator=(const MetadataServer&) = delete;
  /// Lets calls in progress end, at most two seconds.
  ~MetadataServer();

  /// HOST:PORT with the port it got.
  const std::string& address() const;

 private:
  struct State;
  explicit MetadataServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// WorkerService of one worker: answers GetTensorManifest with what serve() was given last. It carries no
/// authentication; bind it to the fleet's own network. Thread-safe.
class WorkerServer {
 public:
  /// Errors: as MetadataServer::start(); kInvalidArgument also where it listens on every address of the machine and no
  /// address to advertise is given.
  static Result<std::unique_ptr<WorkerServer>> start(const ServerOptions& options, LogSink& log);
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;
  ~WorkerServer();

  /// Until the first call of it, whoever asks for a certain source or worker is refused.
  /// Errors: those of encode_manifest(); what was served before stays.
  Result<void> serve(const WorkerManifest& manifest);
  /// HOST:PORT that others are told.
  const std::string& address() const;

 private:
  struct State;
  explicit WorkerServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace towline::control
