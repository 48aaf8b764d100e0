#include "towline/transfer/switches.h"

#include <gtest/gtest.h>

namespace towline::transfer {
namespace {

TEST(Switches, StrictOneIsNothingElse) {
  EXPECT_TRUE(parse_strict_one("1"));
  for (const char* text : {" 1", "1 ", "01", "true", "TRUE", "on", "yes", "2", "0", "", "1\n"})
    EXPECT_FALSE(parse_strict_one(text)) << '"' << text << '"';
  EXPECT_FALSE(parse_strict_one(std::nullopt));
}

TEST(Switches, TruthyTakesFourWordsInAnyCaseAndWhiteSpaceAround) {
  for (const char* text : {"1", "true", "Yes", " ON\t"}) EXPECT_TRUE(parse_truthy(text)) << text;
  for (const char* text : {"", "2", "y", "tru e", "off"}) EXPECT_FALSE(parse_truthy(text)) << text;
  EXPECT_FALSE(parse_truthy(std::nullopt));
}

TEST(Switches, OneOrTrueTakesTwo) {
  for (const char* text : {"1", "true", "TRUE"}) EXPECT_TRUE(parse_one_or_true(text)) << text;
  for (const char* text : {"yes", "on", " 1", ""}) EXPECT_FALSE(parse_one_or_true(text)) << text;
  EXPECT_FALSE(parse_one_or_true(std::nullopt));
}

TEST(Switches, ASwitchKeepsItsDefaultForOtherWordsAndSaysSo) {
  for (const bool otherwise : {false, true}) {
    EXPECT_TRUE(parse_switch("oN", otherwise).value);
    EXPECT_FALSE(parse_switch(" No ", otherwise).value);
    for (const char* text : {"", "2", "enable"}) {
      EXPECT_EQ(parse_switch(text, otherwise).value, otherwise) << text;
      EXPECT_TRUE(parse_switch(text, otherwise).bad_text) << text;
    }
    EXPECT_EQ(parse_switch(std::nullopt, otherwise).value, otherwise);
    EXPECT_FALSE(parse_switch(std::nullopt, otherwise).bad_text) << "not set is no mistake";
  }
}

TEST(Switches, NumbersAreReadWholeOrNotAtAll) {
  EXPECT_EQ(parse_whole(" 42 ", 7).value, 42);
  EXPECT_EQ(parse_whole("+42", 7).value, 42);
  EXPECT_EQ(parse_whole("-3", 7).value, -3);
  for (const char* text : {"", "4.2", "42s", "0x10", "9223372036854775808", "+-1"}) {
    EXPECT_EQ(parse_whole(text, 7).value, 7) << text;
    EXPECT_TRUE(parse_whole(text, 7).bad_text) << text;
  }
  EXPECT_DOUBLE_EQ(parse_real("2.5e3", 7).value, 2500);
  EXPECT_TRUE(parse_real("fast", 7).bad_text);
}

TEST(Switches, APositiveRealIsFiniteAndAboveZero) {
  EXPECT_DOUBLE_EQ(parse_positive("0.25", 300).value, 0.25);
  for (const char* text : {"0", "-1", "inf", "nan", "", "soon"}) {
    EXPECT_DOUBLE_EQ(parse_positive(text, 300).value, 300) << text;
    EXPECT_TRUE(parse_positive(text, 300).bad_text) << text;
  }
  EXPECT_FALSE(parse_positive(std::nullopt, 300).bad_text);
}

TEST(Switches, TheNixlBackendIsUcxUnlessItSaysLibfabric) {
  EXPECT_EQ(parse_nixl_backend(std::nullopt), "UCX");
  EXPECT_EQ(parse_nixl_backend("  "), "UCX");
  EXPECT_EQ(parse_nixl_backend(" libfabric "), "LIBFABRIC");
  EXPECT_EQ(parse_nixl_backend("mooncake"), std::nullopt);
}

TEST(Switches, ANicIsPinnedByListProbedOrLeftAlone) {
  using Kind = NicPin::Kind;
  for (const char* text : {"", "off", "0", "False", " no "}) EXPECT_EQ(parse_nic_pin(text, 0).kind, Kind::kOff) << text;
  EXPECT_EQ(parse_nic_pin("auto", 0).kind, Kind::kProbe);
  EXPECT_EQ(parse_nic_pin("mlx5_0", 3).kind, Kind::kProbe) << "a list has a comma";
  EXPECT_EQ(parse_nic_pin("mlx5_0:1, mlx5_1:1", 1), (NicPin{Kind::kNamed, "mlx5_1:1"}));
  EXPECT_EQ(parse_nic_pin("mlx5_0:1,", 1).kind, Kind::kOff);
  EXPECT_EQ(parse_nic_pin("mlx5_0:1,mlx5_1:1", 2).kind, Kind::kOff) << "the list is shorter than the devices";
}

}  // namespace
}  // namespace towline::transfer
