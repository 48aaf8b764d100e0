#include <gtest/gtest.h>

#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/transfer/allocations.h"
#include "towline/transfer/region_book.h"
#include "unit/transfer/local_tensors.h"
#include "unit/transfer/scripted_agent.h"

namespace towline::transfer {
namespace {

using device::Allocation;
using testing::catalogue_of;
using testing::planned;
using testing::ScriptedAgent;
using testing::ScriptedDevice;

/// Allocations with and without gaps, tensors within them in any order.
struct Placement {
  std::vector<Allocation> allocations;
  std::vector<LocalTensor> tensors;
};

Placement place(Rng& rng) {
  Placement placement;
  uint64_t address = 0x1000;
  for (uint64_t n = 1 + rng.below(12); n > 0; --n) {
    const uint64_t bytes = 64 * (1 + rng.below(16));
    placement.allocations.push_back({Address(address), Bytes(bytes)});
    address += bytes + 64 * rng.below(3);
  }
  for (uint64_t i = 0, n = rng.below(40); i < n; ++i) {
    const Allocation& in = placement.allocations[rng.below(placement.allocations.size())];
    const uint64_t offset = rng.below(in.bytes.count());
    const uint64_t bytes = rng.below(in.bytes.count() - offset + 1);
    placement.tensors.push_back(planned("t" + std::to_string(i), in.base.value() + offset, bytes));
  }
  return placement;
}

TEST(DiscoveryProperties, FindsWhatOneQueryATensorFindsWithOneAnAllocation) {
  const uint64_t seed = test_seed(20261201);
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 500; ++round) {
    const Placement placement = place(rng);
    ScriptedDevice driver;
    driver.allocations = placement.allocations;
    const AddressRangeQuery query = [&driver](Address address) { return driver.get_allocation(address); };
    const Catalogue catalogue = catalogue_of(placement.tensors);
    const auto found = discover_allocations(catalogue, query);
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_EQ(driver.asked.size(), found->size());
    tensor::Manifest with_bytes;
    for (const LocalTensor& tensor : placement.tensors)
      if (tensor.desc.bytes > Bytes(0)) with_bytes.push_back(tensor.desc);
    EXPECT_EQ(*found, find_allocations(with_bytes, query).value());
    EXPECT_TRUE(find_all_uncovered(catalogue, *found).empty());
  }
}

/// After any sequence of changes, what is registered is what was wanted last, and each slice is registered once.
TEST(RegionBookProperties, HoldsWhatWasWantedLast) {
  const uint64_t seed = test_seed(20261201);
  SCOPED_TRACE(seed);
  Rng rng(seed);
  std::vector<device::RegionSlice> all;
  for (uint64_t i = 0; i < 12; ++i)
    all.push_back(device::RegionSlice::whole(std::make_shared<device::MemoryRegion>(device::MemoryRegion::Fields{
        .address = Address(0x1000 * (i + 1)), .bytes = Bytes(64), .keep_alive = std::make_shared<int>(0)})));
  for (int round = 0; round < 200; ++round) {
    ScriptedAgent agent;
    RegionBook book(agent);
    size_t wanted_count = 0;
    for (int step = 0; step < 12; ++step) {
      std::vector<device::RegionSlice> wanted;
      for (const device::RegionSlice& slice : all)
        if (rng.below(2) == 0) wanted.push_back(slice);
      const bool fails = rng.below(4) == 0;
      if (fails) agent.register_error = fail(Code::kResourceExhausted, "no keys");
      const size_t count = wanted.size();
      auto change = book.begin(std::move(wanted), Earlier::kReplace);
      agent.register_error.reset();
      const bool is_dropped = rng.below(4) == 0;
      if (change.has_value() && !is_dropped) {
        book.commit(std::move(change).value());
        wanted_count = count;
      }
      change = fail(Code::kCancelled, "dropped");
      EXPECT_EQ(book.size(), wanted_count) << "round " << round << ", step " << step;
    }
    book.clear();
    EXPECT_EQ(agent.live_registrations, 0u);
  }
}

}  // namespace
}  // namespace towline::transfer
