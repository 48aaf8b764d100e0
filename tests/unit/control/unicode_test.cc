#include "towline/control/unicode.h"

#include <gtest/gtest.h>

#include "towline/base/hash.h"

namespace towline::control {
namespace {

std::string utf8(uint32_t point) {
  std::string out;
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6), put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 0x3F)), put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
  return out;
}

TEST(LowerCase, EqualsPythonsForEveryCodePoint) {
  std::string all;
  for (uint32_t point = 0; point < 0x110000; ++point) {
    if (point >= 0xD800 && point <= 0xDFFF) continue;
    all += lower_case("a" + utf8(point) + "b");
  }
  // hashlib.sha256 over ("a" + chr(p) + "b").lower() of all p but surrogates, Python 3.11 (Unicode 14).
  EXPECT_EQ(to_hex(sha256(as_bytes(all))), "f9bf9b60e8eda106a9138501241b78c3b9094d50c47cf3f6fb5dec38ea371ce3");
}

TEST(LowerCase, GivesTwoCodePointsForTheDottedCapitalI) { EXPECT_EQ(lower_case("İ"), "i\u0307"); }

TEST(LowerCase, EndsAWordWithAFinalSigma) {
  EXPECT_EQ(lower_case("ΟΔΟΣ"), "οδος");
  EXPECT_EQ(lower_case("ΟΔΟΣ ΣΑΣ"), "οδος σας");
  EXPECT_EQ(lower_case("Σ"), "σ");
  EXPECT_EQ(lower_case("ΑΣ."), "ας.");
  EXPECT_EQ(lower_case("ΑΣ.Β"), "ασ.β");
  EXPECT_EQ(lower_case("1Σ"), "1σ");
}

TEST(LowerCase, LeavesBytesThatAreNotUtf8) {
  EXPECT_EQ(lower_case("Z\xffZ\xc3"), "z\xffz\xc3");
  EXPECT_EQ(lower_case(""), "");
}

}  // namespace
}  // namespace towline::control
