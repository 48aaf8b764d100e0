#include "support/simulated_agents.h"

namespace towline::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// L: latency, B: bytes per second, n: bytes. One byte a nanosecond keeps the arithmetic exact.
constexpr SimulatedLink kLink{microseconds(5), 1e9};
constexpr Bytes kBytes(100'000);
constexpr Nanoseconds kWire = nanoseconds(100'000);  // n / B

class SimulatedTransportModel : public ::testing::Test {
 protected:
  SimulatedTransportModel() : network_(clock_, SimulatedNetworkOptions{kLink}) {}

  Nanoseconds time_of(TestAgent& agent, const Completion& completion, TimePoint from) {
    EXPECT_TRUE(transport::await(clock_, *agent.transport, completion, kNoDeadline).has_value());
    return clock_.now() - from;
  }

  SimulatedClock clock_;
  SimulatedNetwork network_;
};

// t = 2 L: one round trip.
TEST_F(SimulatedTransportModel, ConnectingTakesARoundTrip) {
  TestAgent a(clock_, network_, "a", kBytes), b(clock_, network_, "b", kBytes);
  a.connect(b);
  EXPECT_EQ(clock_.now(), TimePoint(2 * kLink.latency));
}

// t = L (request) + n / B + L (last byte).
TEST_F(SimulatedTransportModel, AReadTakesARoundTripAndItsBytes) {
  TestAgent a(clock_, network_, "a", kBytes), b(clock_, network_, "b", kBytes);
  const auto batch = a.prepare(a.connect(b), Direction::kRead, b, kBytes);
  const TimePoint posted = clock_.now();
  EXPECT_EQ(time_of(a, a.post(*batch), posted), 2 * kLink.latency + kWire);
}

// t = n / B + L (last byte) + L (acknowledgement).
TEST_F(SimulatedTransportModel, AWriteTakesItsBytesAndARoundTrip) {
  TestAgent a(clock_, network_, "a", kBytes), b(clock_, network_, "b", kBytes);
  const auto batch = a.prepare(a.connect(b), Direction::kWrite, b, kBytes);
  a.data[0] = std::byte{9};
  const TimePoint posted = clock_.now();
  const Completion done = a.post(*batch);
  sleep_until(clock_, posted + kWire + kLink.latency);
  EXPECT_EQ(b.data[0], std::byte{9});
  EXPECT_EQ(done.phase(), Phase::kPending);
  EXPECT_EQ(time_of(a, done, posted), 2 * kLink.latency + kWire);
}

// k reads from one source share its port: the i-th ends at 2 L + i n / B.
TEST_F(SimulatedTransportModel, ReadersOfOneSourceQueueForItsPort) {
  TestAgent source(clock_, network_, "source", kBytes);
  std::vector<std::unique_ptr<TestAgent>> readers;
  std::vector<std::unique_ptr<transport::Batch>> batches;
  for (const char* name : {"r1", "r2", "r3"}) {
    readers.push_back(std::make_unique<TestAgent>(clock_, network_, name, kBytes));
    batches.push_back(readers.back()->prepare(readers.back()->connect(source), Direction::kRead, source, kBytes));
  }
  const TimePoint posted = clock_.now();
  std::vector<Completion> reads;
  for (size_t i = 0; i < readers.size(); ++i) reads.push_back(readers[i]->post(*batches[i]));
  for (size_t i = 0; i < readers.size(); ++i)
    EXPECT_EQ(time_of(*readers[i], reads[i], posted), 2 * kLink.latency + static_cast<int64_t>(i + 1) * kWire);
}

// Different sources have different ports: k reads by one agent from k sources all end at 2 L + n / B.
TEST_F(SimulatedTransportModel, ReadsFromSeveralSourcesOverlap) {
  TestAgent reader(clock_, network_, "reader", kBytes);
  std::vector<std::unique_ptr<TestAgent>> sources;
  std::vector<std::unique_ptr<transport::Batch>> batches;
  for (const char* name : {"s1", "s2", "s3"}) {
    sources.push_back(std::make_unique<TestAgent>(clock_, network_, name, kBytes));
    batches.push_back(reader.prepare(reader.connect(*sources.back()), Direction::kRead, *sources.back(), kBytes));
  }
  const TimePoint posted = clock_.now();
  std::vector<Completion> reads;
  for (const auto& batch : batches) reads.push_back(reader.post(*batch));
  for (const Completion& read : reads) EXPECT_EQ(time_of(reader, read, posted), 2 * kLink.latency + kWire);
}

// A near reader posts later and is served first: t = L_near + n / B + L_near, while the far request is under way.
TEST_F(SimulatedTransportModel, ThePortServesRequestsInTheOrderOfTheirArrival) {
  network_.set_link("far", "source", {microseconds(1000), 1e9});
  TestAgent source(clock_, network_, "source", kBytes), far(clock_, network_, "far", kBytes),
      near(clock_, network_, "near", kBytes);
  const auto far_batch = far.prepare(far.connect(source), Direction::kRead, source, kBytes);
  const auto near_batch = near.prepare(near.connect(source), Direction::kRead, source, kBytes);
  const TimePoint posted = clock_.now();
  const Completion slow = far.post(*far_batch);
  EXPECT_EQ(time_of(near, near.post(*near_batch), posted), 2 * kLink.latency + kWire);
  EXPECT_EQ(time_of(far, slow, posted), microseconds(1000) + kWire + kLink.latency);
}

// Paced at P < B: t = L + n / P + L, and the port is free after n / B.
TEST_F(SimulatedTransportModel, APaceStretchesAnOperationButNotItsHoldOfThePort) {
  TestAgent a(clock_, network_, "a", kBytes), b(clock_, network_, "b", kBytes), c(clock_, network_, "c", kBytes);
  const auto paced = a.prepare(a.connect(b), Direction::kRead, b, kBytes);
  const auto free = c.prepare(c.connect(b), Direction::kRead, b, kBytes);
  transport::PostOptions pace;
  pace.pace_bytes_per_s = 0.5e9;
  const TimePoint posted = clock_.now();
  const Completion slow = a.post(*paced, pace);
  EXPECT_EQ(time_of(c, c.post(*free), posted), 2 * kLink.latency + 2 * kWire);
  EXPECT_EQ(time_of(a, slow, posted), 2 * kLink.latency + 2 * kWire);
}

// The caps are what a planner needs: latency of a small get 2 L, bandwidth B.
TEST_F(SimulatedTransportModel, CapsClaimWhatTheLinkDoes) {
  TestAgent a(clock_, network_, "a", kBytes), b(clock_, network_, "b", kBytes);
  const auto batch = a.prepare(a.connect(b), Direction::kRead, b, Bytes(1));
  const TimePoint posted = clock_.now();
  const Nanoseconds small = time_of(a, a.post(*batch), posted);
  EXPECT_EQ(small - nanoseconds(1), a.transport->caps().latency);
  EXPECT_EQ(a.transport->caps().bytes_per_s, kLink.bytes_per_s);
}

}  // namespace
}  // namespace towline::sim
