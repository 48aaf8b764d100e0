#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "towline/device/device.h"
#include "towline/device/internal/cuda_shim.h"

namespace towline::device {
namespace {

using ::testing::HasSubstr;

class BuiltinDevices : public ::testing::Test {
 protected:
  std::unique_ptr<Clock> clock_ = make_system_clock();
  const DeviceContext context_{*clock_, null_log()};
};

TEST_F(BuiltinDevices, AreListedInOrderOfPreference) {
  std::vector<std::string_view> names;
  for (const DeviceEntry& entry : builtin_devices()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"cuda", "host", "simulated"}));
}

TEST_F(BuiltinDevices, OpenByNameOrSayWhyNot) {
  for (const DeviceEntry& entry : builtin_devices()) {
    const auto device = open_device(entry.name, context_);
    if (device) {
      EXPECT_EQ((*device)->caps().name, entry.name);
    } else {
      EXPECT_EQ(device.error().code, Code::kUnavailable);
      EXPECT_FALSE(device.error().message.empty());
    }
  }
  EXPECT_TRUE(open_device("host", context_));
  EXPECT_TRUE(open_device("simulated", context_));
}

TEST_F(BuiltinDevices, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  const auto device = open_device("tpu", context_);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, Code::kNotFound);
  EXPECT_EQ(device.error().message, "device 'tpu': there is none of that name; known are cuda, host, simulated");
}

TEST_F(BuiltinDevices, CudaIsUnavailableForATrueReason) {
  const auto device = open_device("cuda", context_);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error(), cuda_unavailable("libcuda.so.1"));
}

TEST(CudaShim, AnAbsentLibraryIsNamed) {
  const Error error = cuda_unavailable("libthere_is_none_of_this_name.so.1");
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("the driver library is absent: libthere_is_none_of_this_name.so.1"));
}

TEST(CudaShim, ALibraryThatIsNoDriverIsNamed) {
  const Error error = cuda_unavailable("libm.so.6");
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_THAT(error.message, HasSubstr("'libm.so.6' is not a CUDA driver"));
}

}  // namespace
}  // namespace towline::device
