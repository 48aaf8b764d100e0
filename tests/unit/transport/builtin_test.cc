#include <gtest/gtest.h>

#include "towline/transport/in_memory.h"
#include "towline/transport/transport.h"
#include "towline/transport/ucx_module.h"
#include "unit/transport/manual_clock.h"

namespace towline::transport {
namespace {

TEST(BuiltinTransports, ListAllThereAreInOrderOfPreference) {
  std::vector<std::string_view> names;
  for (const TransportEntry& entry : builtin_transports()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"ucx", "in_memory"}));
}

TEST(BuiltinTransports, NameTheOnesThereAreForAnUnknownOne) {
  ManualClock clock;
  const auto none = open_transport("smoke_signals", {"a", clock, null_log()});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(to_string(none.error()), "not_found: no transport 'smoke_signals'; there are 'ucx', 'in_memory'");
}

TEST(BuiltinTransports, InMemoryNeedsTheFabricOfItsProcess) {
  ManualClock clock;
  InMemoryFabric fabric;
  TransportContext context{"a", clock, null_log()};
  const auto without = open_transport("in_memory", context);
  ASSERT_FALSE(without.has_value());
  EXPECT_EQ(without.error().code, Code::kUnavailable);
  context.fabric = &fabric;
  const auto with = open_transport("in_memory", context);
  ASSERT_TRUE(with.has_value());
  EXPECT_EQ((*with)->caps().name, "in_memory");
}

TEST(BuiltinTransports, AnAbsentUcxSaysWhatWasTried) {
  // Only the failing path is looked at here; where the module is installed beside this
  // program the row opens, and the contract suite covers it.
  const std::unique_ptr<Clock> clock = make_system_clock();
  TransportContext context{"a", *clock, null_log()};
  context.module_directory = "/nonexistent/modules";
  const auto opened = open_transport("ucx", context);
  if (opened.has_value()) {
    GTEST_SKIP() << "the module is beside this program";
  }
  EXPECT_EQ(opened.error().code, Code::kUnavailable);
  EXPECT_NE(opened.error().message.find("/nonexistent/modules/libtowline_ucx.so"), std::string::npos)
      << opened.error().message;
  EXPECT_NE(opened.error().message.find("lib/libtowline_ucx.so"), std::string::npos) << opened.error().message;
}

}  // namespace
}  // namespace towline::transport
