#include "towline/tensor/digest.h"

namespace towline::tensor {
namespace {

TEST(Digest, PrintsItsHexadecimalDigitsAndReadsThemBack) {
  const Digest digest{xxh3_128(as_bytes("towline"))};
  const std::string text = to_string(digest);
  EXPECT_EQ(text.size(), 32u);
  EXPECT_EQ(parse_digest(text), digest);
  EXPECT_EQ(to_string(Digest{xxh3_128({})}), "99aa06d3014798d86001c324468d497f");
}

TEST(ParseDigest, RefusesOtherLengthsAndOtherDigits) {
  const std::string good = to_string(Digest{xxh3_128({})});
  std::string upper = good;
  upper[2] = 'A';
  std::string letter = good;
  letter[31] = 'g';
  for (const std::string& text : {std::string(), good.substr(1), good + "0", upper, letter, std::string(32, ' ')})
    EXPECT_FALSE(parse_digest(text).has_value()) << text;
}

}  // namespace
}  // namespace towline::tensor
