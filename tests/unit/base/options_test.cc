#include "towline/base/options.h"

#include <algorithm>

namespace towline {
namespace {

using ::testing::HasSubstr;

constexpr OptionSpec kTable[] = {
    {"mode", OptionKind::kChoice, "auto", "", "how", "auto|direct|buffered"},
    {"pool.size", OptionKind::kBytes, "64MiB", "", "how much"},
    {"rank_count", OptionKind::kCount, "3", "ranks", "how many"},
    {"target", OptionKind::kText, "", "", "where"},
    {"timeout", OptionKind::kDuration, "5s", "", "how long"},
    {"verify", OptionKind::kBool, "true", "", "whether"},
};

TEST(Options, StartWithTheDefaults) {
  const Options options(kTable);
  EXPECT_EQ(options.text("mode"), "auto");
  EXPECT_EQ(options.bytes("pool.size"), MiB(64));
  EXPECT_EQ(options.count("rank_count"), 3u);
  EXPECT_EQ(options.duration("timeout"), std::chrono::seconds(5));
  EXPECT_TRUE(options.flag("verify"));
  EXPECT_EQ(options.value("verify").origin, OptionOrigin::kDefault);
}

TEST(Options, StrongerOriginsWinWhateverTheOrder) {
  Options options(kTable);
  ASSERT_TRUE(options.set("rank_count", "9", OptionOrigin::kFlag));
  ASSERT_TRUE(options.set("rank_count", "8", OptionOrigin::kEnvironment, "TOWLINE_RANK_COUNT"));
  ASSERT_TRUE(options.set("rank_count", "7", OptionOrigin::kFile, "f:1"));
  EXPECT_EQ(options.count("rank_count"), 9u);
  EXPECT_EQ(options.value("rank_count").origin, OptionOrigin::kFlag);
  ASSERT_TRUE(options.set("rank_count", "10", OptionOrigin::kFlag));
  EXPECT_EQ(options.count("rank_count"), 10u);
}

TEST(Options, CheckAWeakerOriginThoughItHasNoEffect) {
  Options options(kTable);
  ASSERT_TRUE(options.set("verify", "off", OptionOrigin::kFlag));
  EXPECT_FALSE(options.set("verify", "maybe", OptionOrigin::kFile));
  EXPECT_FALSE(options.flag("verify"));
}

TEST(Options, NameTheNearestOfAnUnknownSetting) {
  Options options(kTable);
  const auto slip = options.set("verfy", "on", OptionOrigin::kFlag);
  ASSERT_FALSE(slip);
  EXPECT_EQ(slip.error().code, Code::kInvalidArgument);
  EXPECT_EQ(slip.error().message, "setting 'verfy' is unknown; did you mean 'verify'?");
  EXPECT_THAT(options.set("colour", "on", OptionOrigin::kFlag).error().message, HasSubstr("towline config"));
}

TEST(Options, SayWhatAValueShouldHaveBeen) {
  Options options(kTable);
  EXPECT_EQ(options.set("mode", "odirect", OptionOrigin::kFlag).error().message,
            "setting 'mode' is 'odirect': expected auto|direct|buffered");
  EXPECT_THAT(options.set("pool.size", "1GB", OptionOrigin::kEnvironment, "TOWLINE_POOL_SIZE").error().message,
              ::testing::AllOf(HasSubstr("expected a size"), HasSubstr("(TOWLINE_POOL_SIZE)")));
  EXPECT_FALSE(options.set("mode", "", OptionOrigin::kFlag));
  EXPECT_FALSE(options.set("mode", "auto|direct", OptionOrigin::kFlag));
  EXPECT_FALSE(options.set("rank_count", "-1", OptionOrigin::kFlag));
  EXPECT_FALSE(options.set("rank_count", "1x", OptionOrigin::kFlag));
  EXPECT_FALSE(options.set("timeout", "soon", OptionOrigin::kFlag));
}

TEST(OptionsFromEnvironment, TakeOurVariablesAndLeaveOthers) {
  Options options(kTable);
  ASSERT_TRUE(options.set_from_environment(
      {{"HOME", "/root"}, {"TOWLINE_POOL_SIZE", "1g"}, {"TOWLINE_RANK_COUNT", "5"}, {"TOWLINE_SEED", "7"}}));
  EXPECT_EQ(options.bytes("pool.size"), GiB(1));
  EXPECT_EQ(options.count("rank_count"), 5u);
  EXPECT_EQ(options.value("rank_count").where, "TOWLINE_RANK_COUNT");
}

TEST(OptionsFromEnvironment, RefuseAnUnknownVariableOfOurs) {
  Options options(kTable);
  EXPECT_EQ(options.set_from_environment({{"TOWLINE_VERIFFY", "1"}}).error().message,
            "environment variable 'TOWLINE_VERIFFY' is unknown; did you mean 'TOWLINE_VERIFY'?");
}

TEST(OptionsFromFile, ReadLinesAndComments) {
  Options options(kTable);
  ASSERT_TRUE(options.set_from_file("# all\n\n mode = direct # fast\r\nverify=no\ntarget =\n", "towline.conf"));
  EXPECT_EQ(options.text("mode"), "direct");
  EXPECT_FALSE(options.flag("verify"));
  EXPECT_EQ(options.value("mode").where, "towline.conf:3");
  EXPECT_EQ(options.value("mode").origin, OptionOrigin::kFile);
  EXPECT_EQ(options.value("target").origin, OptionOrigin::kFile);
}

TEST(OptionsFromFile, NameFileAndLineOfWhatIsWrong) {
  Options options(kTable);
  EXPECT_THAT(options.set_from_file("mode = auto\nverify", "a.conf").error().message, HasSubstr("a.conf:2: 'verify'"));
  EXPECT_THAT(options.set_from_file("mode = fast", "a.conf").error().message, HasSubstr("(a.conf:1)"));
  EXPECT_THAT(options.set_from_file("\nmod = auto", "a.conf").error().message,
              ::testing::AllOf(HasSubstr("(a.conf:2)"), HasSubstr("'mode'")));
}

TEST(OptionNames, OfFlagAndVariableFollowFromTheName) {
  EXPECT_EQ(flag_name("load_mode"), "--load-mode");
  EXPECT_EQ(flag_name("pool.size"), "--pool-size");
  EXPECT_EQ(environment_name("pool.size"), "TOWLINE_POOL_SIZE");
}

TEST(OptionTable, IsSortedHasUniqueNamesAndValidDefaults) {
  const auto table = option_table();
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_TRUE(check_option(table[i], table[i].fallback)) << table[i].name;
    EXPECT_FALSE(table[i].help.empty()) << table[i].name;
    EXPECT_EQ(table[i].choices.empty(), table[i].kind != OptionKind::kChoice) << table[i].name;
    EXPECT_TRUE(i == 0 || table[i - 1].name < table[i].name) << table[i].name;
  }
  EXPECT_TRUE(Options().flag("verify"));
}

TEST(OptionsDeathTest, ReadingAnUnknownNameOrAnotherKindIsABug) {
  const Options options(kTable);
  EXPECT_DEATH(static_cast<void>(options.text("nothing")), "no such setting");
  EXPECT_DEATH(static_cast<void>(options.flag("mode")), "another kind");
}

TEST(ParseBool, TakesTheTwelveWordsInAnyCase) {
  for (const char* text : {"y", "Yes", "ON", "true", "enable", "1"}) EXPECT_EQ(parse_bool(text), true) << text;
  for (const char* text : {"n", "No", "OFF", "false", "disable", "0"}) EXPECT_EQ(parse_bool(text), false) << text;
  for (const char* text : {"", " true", "t", "2", "enabled"}) EXPECT_FALSE(parse_bool(text).has_value()) << text;
}

TEST(ParseDuration, TakesUnitsAndBareSeconds) {
  using std::chrono::hours, std::chrono::microseconds, std::chrono::milliseconds, std::chrono::minutes,
      std::chrono::seconds;
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("5s"), seconds(5));
  EXPECT_EQ(parse_duration("5"), seconds(5));
  EXPECT_EQ(parse_duration("2m"), minutes(2));
  EXPECT_EQ(parse_duration("1H"), hours(1));
  EXPECT_EQ(parse_duration("1.5s"), milliseconds(1500));
  EXPECT_EQ(parse_duration("10us"), microseconds(10));
  EXPECT_EQ(parse_duration("0"), Nanoseconds(0));
  EXPECT_EQ(parse_duration("never"), Nanoseconds::max());
}

TEST(ParseDuration, RefusesSignsWordsAndWhatDoesNotFit) {
  for (const char* text : {"", "-1s", "inf", "nan", "s", "1d", "1 s s", "1e300", "300000000000h", "5 parsecs"})
    EXPECT_FALSE(parse_duration(text).has_value()) << text;
}

TEST(Nearest, FindsALikelySlipAndNothingElse) {
  const std::vector<std::string_view> names = {"deadline", "verify", "window"};
  EXPECT_EQ(nearest("deadlin", names), "deadline");
  EXPECT_EQ(nearest("vreify", names), "verify");
  EXPECT_EQ(nearest("verify", names), "verify");
  EXPECT_FALSE(nearest("colour", names).has_value());
  EXPECT_FALSE(nearest("", names).has_value());
}

TEST(Options, BoundsAreKeptInEveryUnit) {
  const OptionSpec interval{"i", OptionKind::kDuration, "1s", "", "", {}, "100ms"};
  for (const char* text : {"100ms", "0.1s", "never", "1"}) EXPECT_TRUE(check_option(interval, text)) << text;
  for (const char* text : {"0", "99ms", "1us"}) EXPECT_FALSE(check_option(interval, text)) << text;
  EXPECT_EQ(check_option(interval, "0").error().message, "setting 'i' is '0': expected 100ms or more");
  const OptionSpec size{"s", OptionKind::kBytes, "1MiB", "", "", {}, "4KiB", "1GiB"};
  EXPECT_TRUE(check_option(size, "4096"));
  EXPECT_TRUE(check_option(size, "1024m"));
  EXPECT_EQ(check_option(size, "4095").error().message, "setting 's' is '4095': expected from 4KiB to 1GiB");
  EXPECT_FALSE(check_option(size, "1025MiB"));
  const OptionSpec count{"c", OptionKind::kCount, "1", "", "", {}, {}, "10"};
  EXPECT_EQ(check_option(count, "11").error().message, "setting 'c' is '11': expected 10 or less");
  EXPECT_EQ(check_option(count, "x").error().message, "setting 'c' is 'x': expected a whole number");
}

TEST(Options, AFileSetsANameOnce) {
  Options options;
  const auto set = options.set_from_file("deadline = 5s\n# comment\ndeadline = 6s\n", "f");
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, Code::kInvalidArgument);
  EXPECT_EQ(set.error().message, "f:3: 'deadline' is set in line 1 already; keep one of the two");
}

}  // namespace
}  // namespace towline
