#include "towline/transfer/session.h"

#include "towline/device/host.h"

namespace towline::transfer {

Session::Session(SessionOptions options, Clock& clock, LogSink& log, std::unique_ptr<transport::Transport> transport)
    : options_(std::move(options)),
      clock_(clock),
      log_(log),
      transport_(std::move(transport)),
      device_(device::open_host_device({clock, log}, {.segments = transport_->segments()})),
      manager_(std::make_unique<TransferManager>(
          TransferManager::Options{clock, log, *transport_, *device_, options_.metrics, options_.pool})) {}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options, Clock& clock, LogSink& log) {
  auto transport = TOWLINE_TRY(
      transport::open_transport(options.transport, {.name = options.agent_name, .clock = clock, .log = log}));
  return std::unique_ptr<Session>(new Session(options, clock, log, std::move(transport)));
}

}  // namespace towline::transfer
