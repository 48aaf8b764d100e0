#include "towline/transfer/plan.h"

#include <gtest/gtest.h>

#include <map>

#include "towline/transfer/layout.h"
#include "unit/transfer/local_tensors.h"

namespace towline::transfer {
namespace {

using testing::catalogue_of;
using testing::planned;
using testing::remote;

TransferPlan plan_of(const tensor::Manifest& source, const Catalogue& local, const PlanLimits& limits) {
  return plan_receive(match(source, local, {}).value(), source, local, limits);
}

TEST(PlanReceive, CutsALargeTensorIntoChunksInOrder) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 20)});
  const TransferPlan plan = plan_of({remote("a", 0x9000, 20, "torch.uint8", 3)}, local,
                                    {.chunk_bytes = Bytes(8), .post_bytes = Bytes(8), .post_pieces = 4});
  ASSERT_EQ(plan.pieces.size(), 3u);
  EXPECT_EQ(
      plan.pieces[2],
      (transport::Piece{
          .local = Address(0x1010), .remote = Address(0x9010), .bytes = Bytes(4), .remote_device = DeviceOrdinal(3)}));
  EXPECT_EQ(plan.posts.size(), 3u);
  EXPECT_EQ(plan.bytes, Bytes(20));
}

TEST(PlanReceive, GathersSmallTensorsIntoOnePostUpToBothLimits) {
  std::vector<LocalTensor> tensors;
  tensor::Manifest source;
  for (uint64_t i = 0; i < 10; ++i) {
    tensors.push_back(planned(std::to_string(i), 0x1000 + i * 16, 4));
    source.push_back(remote(std::to_string(i), 0x9000 + i * 16, 4));
  }
  const Catalogue local = catalogue_of(std::move(tensors));
  EXPECT_EQ(plan_of(source, local, {Bytes(8), Bytes(16), 100}).posts.size(), 3u) << "16 bytes a post";
  EXPECT_EQ(plan_of(source, local, {Bytes(8), Bytes(1000), 3}).posts.size(), 4u) << "three pieces a post";
}

TEST(PlanReceive, MakesNoPieceForAZeroByteTensor) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 0), planned("b", 0x2000, 4)});
  const TransferPlan plan = plan_of({remote("a", 0, 0), remote("b", 0x9000, 4)}, local, {});
  ASSERT_EQ(plan.pieces.size(), 1u);
  EXPECT_EQ(plan.pair_of_piece[0], 1u);
}

TEST(PlanLimitsFor, NeverExceedsWhatTheTransportAllows) {
  transport::TransportCaps caps;
  caps.piece_bytes_max = KiB(64);
  caps.bytes_in_flight_max = KiB(256);
  caps.pieces_per_post_max = 16;
  const PlanLimits limits = limits_for(caps);
  EXPECT_EQ(limits.chunk_bytes, KiB(64));
  EXPECT_EQ(limits.post_bytes, KiB(256));
  EXPECT_EQ(limits.post_pieces, 16u);
}

TEST(PlanLayout, AlignsEachTensorAndEndsAfterTheLast) {
  const Layout layout = plan_layout({remote("a", 0, 1), remote("b", 0, 0), remote("c", 0, 300)}, Bytes(256)).value();
  EXPECT_EQ(layout.offsets, (std::vector<Bytes>{Bytes(0), Bytes(256), Bytes(256)}));
  EXPECT_EQ(layout.bytes, Bytes(768));
}

TEST(PlanLayout, RefusesASumThatOverflows) {
  const Result<Layout> layout = plan_layout({remote("a", 0, ~0ull - 600), remote("b", 0, 512)}, Bytes(256));
  ASSERT_FALSE(layout.has_value());
  EXPECT_THAT(layout.error().message, ::testing::HasSubstr("tensor 'b'"));
}

// Every byte of a rule once, in posts that hold to the limits but where one run is more.
TEST(PlanPieces, CutsRulesByRowsAndRunsAndKeepsThemRules) {
  const auto bytes_of = [](const std::vector<transport::Piece>& pieces) {
    std::map<uint64_t, uint64_t> bytes;
    for (const transport::Piece& piece : pieces)
      for (uint64_t i = 0; i < piece.grid.outer; ++i)
        for (uint64_t j = 0; j < piece.grid.inner; ++j)
          for (uint64_t b = 0; b < piece.bytes.count(); ++b)
            EXPECT_TRUE(
                bytes
                    .emplace(piece.local.value() + i * piece.local_stride.outer + j * piece.local_stride.inner + b,
                             piece.remote.value() + i * piece.remote_stride.outer + j * piece.remote_stride.inner + b)
                    .second);
    return bytes;
  };
  const transport::Piece rule{.local = Address(1000),
                              .remote = Address(50000),
                              .bytes = Bytes(5),
                              .grid = {4, 3},
                              .local_stride = {20, 6},
                              .remote_stride = {200, 50}};
  for (const uint64_t chunk : {1, 3, 5, 7, 10, 15, 16, 30, 45, 60, 100}) {
    const TransferPlan plan = plan_pieces({&rule, 1}, {.chunk_bytes = Bytes(chunk), .post_bytes = Bytes(chunk)});
    EXPECT_EQ(bytes_of(plan.pieces), bytes_of({rule})) << chunk;
    EXPECT_EQ(plan.bytes, Bytes(60));
    for (const TransferPlan::Post& post : plan.posts) EXPECT_LE(post.bytes, Bytes(chunk)) << chunk;
    EXPECT_LE(plan.pieces.size(), chunk >= 60 ? 1u : chunk >= 15 ? 4u : chunk >= 5 ? 12u : 60u) << chunk;
  }
}

}  // namespace
}  // namespace towline::transfer
