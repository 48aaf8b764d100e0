#include "towline/control/request_meter.h"

#include <array>

#include "towline/control/control_metrics.h"

namespace towline::control {

std::string_view request_outcome(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kUnauthenticated:
    case Code::kPermissionDenied:
      return "unauthenticated";
    case Code::kCancelled:
      return "cancelled";
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kDataLoss:
    case Code::kAborted:
      return "backend_error";
    default:
      return "error";
  }
}

RequestMeter::RequestMeter(const Clock& clock, MetricsSink& metrics)
    : clock_(clock), metrics_(metrics), in_flight_(metrics, metrics::kGrpcRequestsInFlight) {}

RequestMeter::Measured::Measured(RequestMeter& meter, std::string_view method)
    : meter_(meter), method_(method), start_(meter.clock_.now()), place_(meter.in_flight_) {}

RequestMeter::Measured::~Measured() {
  const std::chrono::duration<double> took = meter_.clock_.now() - start_;
  const std::array<std::string_view, 1> labels = {method_};
  meter_.metrics_.record(metrics::kGrpcRequestSeconds, labels, took.count());
  count(meter_.metrics_, metrics::kGrpcRequests, {method_, outcome_});
}

void RequestMeter::Measured::ended(Code code) { outcome_ = request_outcome(code); }

}  // namespace towline::control
