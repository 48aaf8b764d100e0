#include "towline/loader/checkpoint_verify.h"

#include <gtest/gtest.h>

#include "towline/device/host.h"
#include "towline/loader/checkpoint_views.h"
#include "towline/storage/posix.h"
#include "unit/loader/checkpoint_builder.h"

namespace towline::loader {
namespace {

class CheckpointVerify : public ::testing::Test {
 protected:
  CheckpointVerify() {
    tensors_ = {make_u8("a", 9'000'001), make_u8("empty", 0), make_u8("b", 100)};
    path_ = folder_.write("m.safetensors", safetensors_file(tensors_));
  }
  LoaderContext context() { return LoaderContext{.clock = *clock_, .log = null_log(), .buffered = *posix_}; }
  tensor::Manifest loaded_manifest() { return load_checkpoint(context(), *device_, path_, {}).value().manifest(); }
  VerifyReport verify(const tensor::Manifest& manifest) {
    const auto report = verify_against_file(context(), *device_, path_, manifest, {});
    EXPECT_TRUE(report.has_value()) << report.error().message;
    return report.value_or(VerifyReport{});
  }

  TemporaryFolder folder_;
  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<storage::Storage> posix_ = storage::open_posix_storage({*clock_, null_log()}, {}).value();
  std::unique_ptr<device::Device> device_ = device::open_host_device({*clock_, null_log()}, {});
  std::vector<MadeTensor> tensors_;
  std::string path_;
};

TEST_F(CheckpointVerify, FindsTheFileEqualToWhatWasLoadedFromIt) {
  const VerifyReport report = verify(loaded_manifest());
  EXPECT_TRUE(report.equal()) << report.first_difference.value_or("");
  EXPECT_EQ(report.matching, 3u);
  EXPECT_EQ(report.bytes, Bytes(9'000'101));
}

TEST_F(CheckpointVerify, NamesTheFirstTensorThatDiffers) {
  const auto manifest = loaded_manifest();
  tensors_[0].data[8'500'000] = static_cast<char>(tensors_[0].data[8'500'000] ^ 1);
  folder_.write("m.safetensors", safetensors_file(tensors_));
  const VerifyReport report = verify(manifest);
  EXPECT_EQ(report.differences, 1u);
  EXPECT_EQ(report.first_difference->substr(0, 19), "tensor 'a': digest ");
}

TEST_F(CheckpointVerify, SeesWhatOnlyOneSideHas) {
  auto manifest = loaded_manifest();
  manifest[2].name = "c";
  const VerifyReport report = verify(manifest);
  EXPECT_EQ(report.differences, 2u);
  EXPECT_EQ(report.first_difference, "tensor 'b': in the file, not here");
  EXPECT_EQ(verify({}).differences, 3u);
}

TEST_F(CheckpointVerify, SeesOtherTypesShapesSizesAndDoubles) {
  const auto good = loaded_manifest();
  const auto first = [&](auto change) {
    auto manifest = good;
    change(manifest);
    return verify(manifest).first_difference.value_or("none");
  };
  EXPECT_EQ(first([](auto& m) { m[0].dtype = "torch.int8"; }),
            "tensor 'a': dtype torch.uint8 in the file, torch.int8 here");
  EXPECT_EQ(first([](auto& m) {
              m[2].shape = tensor::Shape{10, 10};
            }),
            "tensor 'b': shape [100] in the file, [10, 10] here");
  EXPECT_EQ(first([](auto& m) { m[2].bytes = Bytes(99); }), "tensor 'b': 100 bytes in the file, 99 here");
  EXPECT_EQ(first([](auto& m) { m.push_back(m[0]); }), "tensor 'a': here twice");
}

TEST_F(CheckpointVerify, DoesNotCallEqualWhatHasNoDigest) {
  auto manifest = loaded_manifest();
  manifest[1].digest.reset();
  const VerifyReport report = verify(manifest);
  EXPECT_EQ(report.differences, 0u);
  EXPECT_EQ(report.unverified, 1u);
  EXPECT_FALSE(report.equal());
}

TEST_F(CheckpointVerify, ViewsShowTheFileWithoutACopy) {
  const auto views = open_views(context(), path_, {});
  ASSERT_TRUE(views.has_value()) << views.error().message;
  ASSERT_EQ(views->size(), 3u);
  EXPECT_EQ(views->bytes(), Bytes(9'000'101));
  const auto index = views->find("b");
  ASSERT_TRUE(index.has_value());
  const LoadedTensor tensor = (*views)[*index];
  EXPECT_EQ(tensor.desc.name, "b");
  EXPECT_EQ(bytes_of(*device_, tensor.slice), tensors_[2].data);
  EXPECT_EQ(views->find("z"), std::nullopt);
}

TEST_F(CheckpointVerify, ViewsOutliveTheirCheckpointByTheirSlices) {
  LoadedTensor kept = [&] {
    const auto views = open_views(context(), path_, {}).value();
    return views[0];
  }();
  EXPECT_TRUE(bytes_of(*device_, kept.slice) == tensors_[0].data);
}

TEST_F(CheckpointVerify, ViewsSpanShards) {
  folder_.write("s/1.safetensors", safetensors_file({make_u8("x", 10), make_u8("y", 20)}));
  folder_.write("s/2.safetensors", safetensors_file({make_u8("z", 30)}));
  const auto views = open_views(context(), folder_.path() + "/s", {});
  ASSERT_TRUE(views.has_value()) << views.error().message;
  EXPECT_EQ(views->size(), 3u);
  EXPECT_EQ((*views)[2].desc.name, "z");
  EXPECT_EQ((*views)[1].desc.bytes, Bytes(20));
  EXPECT_EQ(views->find("z"), 2u);
}

TEST_F(CheckpointVerify, ViewsRefuseWhatIsNoFile) {
  EXPECT_EQ(open_views(context(), folder_.path() + "/none.safetensors", {}).error().code, Code::kNotFound);
  std::filesystem::create_directory(folder_.path() + "/d.safetensors");
  EXPECT_EQ(open_views(context(), folder_.path() + "/d.safetensors", {}).error().code, Code::kInvalidArgument);
  folder_.write("empty.safetensors", "");
  EXPECT_EQ(open_views(context(), folder_.path() + "/empty.safetensors", {}).error().code, Code::kDataLoss);
}

}  // namespace
}  // namespace towline::loader
