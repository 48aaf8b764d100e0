#include "towline/control/request_meter.h"

#include <gtest/gtest.h>

#include "contract/control/manual_clock.h"
#include "towline/control/control_metrics.h"

namespace towline::control {
namespace {

using Samples = std::vector<InMemoryMetrics::Sample>;

TEST(RequestMeter, CountsACallOnceWhenItEnds) {
  ManualClock clock;
  InMemoryMetrics recorded;
  RequestMeter meter(clock, recorded);
  {
    RequestMeter::Measured call(meter, "ListSources");
    EXPECT_TRUE(recorded.samples("mx_grpc_requests_total").empty());
    clock.advance(std::chrono::milliseconds(20));
  }
  const Samples expected = {{"mx_grpc_requests_in_flight", {}, 0},
                            {"mx_grpc_requests_in_flight", {}, 1},
                            {"mx_grpc_request_seconds", {"ListSources"}, .02},
                            {"mx_grpc_requests_total", {"ListSources", "ok"}, 1},
                            {"mx_grpc_requests_in_flight", {}, 0}};
  EXPECT_EQ(recorded.samples(), expected);
}

TEST(RequestMeter, CountsAFailureByItsCode) {
  ManualClock clock;
  InMemoryMetrics recorded;
  RequestMeter meter(clock, recorded);
  {
    RequestMeter::Measured first(meter, "GetMetadata");
    RequestMeter::Measured second(meter, "Reboot");
    first.ended(Code::kNotFound);
    second.ended(Code::kUnimplemented);
  }
  const Samples expected = {{"mx_grpc_requests_total", {"other", "error"}, 1},
                            {"mx_grpc_requests_total", {"GetMetadata", "not_found"}, 1}};
  EXPECT_EQ(recorded.samples("mx_grpc_requests_total"), expected);
  EXPECT_EQ(recorded.samples("mx_grpc_requests_in_flight").back().value, 0);
}

TEST(RequestOutcome, IsOneOfTheSevenForEveryCode) {
  const std::map<Code, std::string_view> expected = {{Code::kInvalidArgument, "invalid_argument"},
                                                     {Code::kOutOfRange, "invalid_argument"},
                                                     {Code::kNotFound, "not_found"},
                                                     {Code::kUnauthenticated, "unauthenticated"},
                                                     {Code::kPermissionDenied, "unauthenticated"},
                                                     {Code::kCancelled, "cancelled"},
                                                     {Code::kUnavailable, "backend_error"},
                                                     {Code::kDeadlineExceeded, "backend_error"},
                                                     {Code::kDataLoss, "backend_error"},
                                                     {Code::kAborted, "backend_error"}};
  for (uint8_t code = 1; code <= 16; ++code) {
    const auto found = expected.find(static_cast<Code>(code));
    EXPECT_EQ(request_outcome(static_cast<Code>(code)), found == expected.end() ? "error" : found->second)
        << code_name(static_cast<Code>(code));
  }
}

}  // namespace
}  // namespace towline::control
