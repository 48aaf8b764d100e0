#include "towline/base/text.h"

namespace towline {
namespace {

TEST(Utf8, KnowsTheWellFormedSequences) {
  EXPECT_EQ(utf8_sequence_bytes("a"), 1u);
  EXPECT_EQ(utf8_sequence_bytes("\xC3\xA9x"), 2u);
  EXPECT_EQ(utf8_sequence_bytes("\xE2\x82\xAC"), 3u);
  EXPECT_EQ(utf8_sequence_bytes("\xF0\x9F\x98\x80"), 4u);
  EXPECT_EQ(utf8_sequence_bytes(""), 0u);
}

TEST(Utf8, RefusesOverlongSurrogateCutAndTooLargeForms) {
  for (const std::string_view bad :
       {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xE2\x82", "\xF0\x9F\x98", "\xC3", "\xC3(", "\xE2\x28\xA1", "\xFF"})
    EXPECT_FALSE(is_utf8(bad)) << escape_control(bad);
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("na\xC3\xAFve \xF4\x8F\xBF\xBF"));
}

TEST(EscapeControl, MakesOneLineAndLeavesText) {
  EXPECT_EQ(escape_control("two\nlines\ttab\x1b[0m"), "two\\nlines\\ttab\\x1b[0m");
  EXPECT_EQ(escape_control("caf\xC3\xA9 \"q\" \\"), "caf\xC3\xA9 \"q\" \\");
  EXPECT_EQ(escape_control("\xC3"), "\\xc3");
}

TEST(EscapeJson, EscapesWhatTheFormatDemands) {
  EXPECT_EQ(escape_json("a\"b\\c\n\r\t\x01"), "a\\\"b\\\\c\\n\\r\\t\\u0001");
  EXPECT_EQ(escape_json("\xC3\xA9"), "\xC3\xA9");
  EXPECT_EQ(escape_json("x\xFFy"), "x\xEF\xBF\xBDy");
}

}  // namespace
}  // namespace towline
