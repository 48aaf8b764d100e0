#include "towline/transfer/catalogue.h"

#include <gtest/gtest.h>

#include "unit/transfer/local_tensors.h"

namespace towline::transfer {
namespace {

using testing::planned;
using testing::planned_region;

std::string error_of(std::vector<LocalTensor> tensors) {
  const Result<Catalogue> built = Catalogue::build(std::move(tensors));
  EXPECT_FALSE(built.has_value());
  if (built.has_value()) return "";
  EXPECT_EQ(built.error().code, Code::kInvalidArgument);
  return built.error().message;
}

TEST(CatalogueBuild, KeepsTheOrderGivenAndFindsByName) {
  const Catalogue catalogue = testing::catalogue_of({planned("b", 0x1000, 16), planned("a", 0x2000, 8)});
  ASSERT_EQ(catalogue.size(), 2u);
  EXPECT_EQ(catalogue.manifest()[0].name, "b");
  EXPECT_EQ(catalogue.find("a")->desc.address, Address(0x2000));
  EXPECT_EQ(catalogue.find_index("b"), 0u);
  EXPECT_EQ(catalogue.find("c"), nullptr);
  EXPECT_EQ(catalogue.bytes(), Bytes(24));
}

TEST(CatalogueBuild, RefusesANameTwice) {
  EXPECT_EQ(error_of({planned("x", 0x1000, 8), planned("y", 0x2000, 8), planned("x", 0x3000, 8)}),
            "tensor 'x' is named twice in one catalogue");
}

TEST(CatalogueBuild, RefusesATensorWithoutAName) {
  EXPECT_EQ(error_of({planned("", 0x1000, 8)}), "a tensor without a name cannot be registered");
}

TEST(CatalogueBuild, RefusesMemoryOutsideItsRegion) {
  EXPECT_EQ(error_of({describe("x", "torch.uint8", {planned_region(0x1000, 8), Bytes(4), Bytes(8)})}),
            "tensor 'x': its 8 bytes at offset 4 leave their memory region");
}

TEST(CatalogueBuild, RefusesADescriptorThatIsNotTheMemory) {
  LocalTensor moved = planned("x", 0x1000, 8);
  moved.desc.address = Address(0x1008);
  EXPECT_EQ(error_of({moved}), "tensor 'x': described at 0x1008, its memory is at 0x1000");
  LocalTensor longer = planned("x", 0x1000, 8);
  longer.desc.bytes = Bytes(9);
  EXPECT_EQ(error_of({longer}), "tensor 'x': described as 9 bytes, its memory has 8");
}

TEST(CatalogueBuild, RefusesAShapeThatDoesNotMakeTheBytes) {
  const auto region = device::RegionSlice::whole(planned_region(0x1000, 24));
  EXPECT_EQ(error_of({describe("x", "torch.float32", region, tensor::Shape{2, 4})}),
            "tensor 'x': shape [2, 4] of torch.float32 does not make 24 bytes");
  EXPECT_TRUE(Catalogue::build({describe("x", "torch.float32", region, tensor::Shape{2, 3})}).has_value());
}

TEST(CatalogueBuild, TakesADtypeThatOnlyItsOwnerKnows) {
  const auto region = device::RegionSlice::whole(planned_region(0x1000, 24));
  EXPECT_TRUE(Catalogue::build({describe("x", "vendor.int3", region, tensor::Shape{64})}).has_value());
}

}  // namespace
}  // namespace towline::transfer
