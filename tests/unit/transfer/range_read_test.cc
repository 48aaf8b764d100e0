#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/transfer/replicas.h"

namespace towline::transfer {
namespace {

using testing::Replica;

class RangeReads : public ::testing::Test {
 protected:
  void SetUp() override {
    a_.hold({{"w", 100'000}}, 1);
    b_.want({{"w", 100'000}});
    peer_ = b_.manager->add_peer(a_.manager->metadata(), kNoDeadline).value();
  }
  /// Bytes [from, from + bytes) of the source's tensor to `to` of ours.
  RangeRead range(uint64_t from, uint64_t to, uint64_t bytes) {
    return {a_.manager->manifest()[0].address + Bytes(from), b_.manager->manifest()[0].address + Bytes(to),
            Bytes(bytes), DeviceOrdinal(0)};
  }
  std::unique_ptr<Clock> clock_ = make_system_clock();
  transport::InMemoryFabric fabric_;
  Replica a_{*clock_, fabric_, "a"};
  Replica b_{*clock_, fabric_, "b"};
  transport::PeerId peer_;
};

TEST_F(RangeReads, LandWhereTheySayAndNowhereElse) {
  const RangeRead first[] = {range(10, 50'000, 1000), range(20'000, 0, 7), range(5, 9, 0)};
  const RangeRead second[] = {range(99'999, 99'999, 1)};
  std::vector<std::unique_ptr<PostedRead>> posted;
  posted.push_back(b_.manager->post_reads(peer_, first).value());
  posted.push_back(b_.manager->post_reads(peer_, second).value());
  EXPECT_EQ(posted[0]->ranges(), 2u);
  EXPECT_EQ(posted[0]->bytes(), Bytes(1007));
  const RangeReadReport report = b_.manager->await_reads(std::move(posted), kNoDeadline);
  ASSERT_TRUE(report.status.has_value()) << report.status.error().message;
  EXPECT_EQ(report.ranges, 3u);
  const std::vector<std::byte> source = a_.bytes_of("w");
  std::vector<std::byte> expected(100'000);
  std::copy_n(source.begin() + 10, 1000, expected.begin() + 50'000);
  std::copy_n(source.begin() + 20'000, 7, expected.begin());
  expected[99'999] = source[99'999];
  EXPECT_EQ(b_.bytes_of("w"), expected);
}

TEST_F(RangeReads, OutsideOfWhatIsRegisteredNothingStarts) {
  const RangeRead outside[] = {range(0, 0, 16), range(99'990, 0, 16)};
  const auto posted = b_.manager->post_reads(peer_, outside);
  ASSERT_FALSE(posted.has_value());
  EXPECT_EQ(posted.error().code, Code::kInvalidArgument);
  EXPECT_EQ(b_.bytes_of("w"), std::vector<std::byte>(100'000));
}

TEST_F(RangeReads, FailTogetherWhenThePeerIsGone) {
  const RangeRead ranges[] = {range(0, 0, 16)};
  a_.manager.reset();
  a_.transport.reset();
  auto posted = b_.manager->post_reads(peer_, ranges);
  if (posted.has_value()) {
    std::vector<std::unique_ptr<PostedRead>> reads;
    reads.push_back(std::move(posted).value());
    const RangeReadReport report =
        b_.manager->await_reads(std::move(reads), deadline_after(*clock_, std::chrono::seconds(5)));
    EXPECT_FALSE(report.status.has_value());
    EXPECT_FALSE(b_.manager->healthy());
  } else {
    EXPECT_EQ(posted.error().code, Code::kUnavailable);
  }
}

TEST_F(RangeReads, IntoABufferThatIsNotInTheCatalogue) {
  const device::MemoryRegionPtr buffer = b_.device->allocate(Bytes(4096), {}).value();
  const auto registration = b_.manager->register_buffer(device::RegionSlice::whole(buffer)).value();
  RangeReadOptions options;
  options.memory = {buffer};
  const RangeRead ranges[] = {{a_.manager->manifest()[0].address, buffer->address(), Bytes(4096), DeviceOrdinal(0)}};
  std::vector<std::unique_ptr<PostedRead>> reads;
  reads.push_back(b_.manager->post_reads(peer_, ranges, options).value());
  ASSERT_TRUE(b_.manager->await_reads(std::move(reads), kNoDeadline).status.has_value());
  const std::vector<std::byte> source = a_.bytes_of("w");
  EXPECT_TRUE(std::equal(source.begin(), source.begin() + 4096, buffer->host_view()));
}

}  // namespace
}  // namespace towline::transfer
