#include "towline/loader/safetensors_header.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "property/loader/header_oracle.h"
#include "towline/base/hash.h"
#include "towline/base/rng.h"

namespace towline::loader {
namespace {

uint64_t seed_of_run() {
  const char* text = std::getenv("TOWLINE_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 20261201;
}

std::string file_of(std::string_view json) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(json.size() >> (8 * i) & 0xFF));
  return file.append(json);
}

const char* pick_space(Rng& rng) {
  static constexpr std::array<const char*, 6> kSpaces = {"", "", "", " ", "\n\t", "\r\n  "};
  return kSpaces[rng.below(kSpaces.size())];
}

/// A name spelled as JSON in one of the ways that mean the same.
std::string spell(std::string_view name, Rng& rng) {
  std::string text = "\"";
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      text += '\\', text += letter;
    } else if (byte < 0x20 || (byte < 0x7F && rng.below(20) == 0)) {
      text += fmt::format("\\u{:04x}", byte);
    } else {
      text += letter;
    }
  }
  return text + '"';
}

std::string random_name(Rng& rng, size_t index) {
  static constexpr std::array<const char*, 8> kParts = {"model.layers.", "é", "重み", "\U0001F600", "\"", "\\",
                                                        "\x01",          " "};
  std::string name = fmt::format("{}", index);
  for (uint64_t i = rng.below(5); i > 0; --i) name += kParts[rng.below(kParts.size())];
  return name;
}

struct Built {
  std::string file;
  uint64_t file_bytes = 0;
};

std::string random_body(Rng& rng, std::string_view dtype, const std::vector<uint64_t>& shape, uint64_t begin,
                        uint64_t end) {
  if (rng.below(3) > 0) {
    return fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", dtype, fmt::join(shape, ","), begin,
                       end);
  }
  std::vector<std::string> fields = {
      fmt::format(R"("dtype"{}:{}"{}")", pick_space(rng), pick_space(rng), dtype),
      fmt::format(R"("shape":[{}{}])", pick_space(rng), fmt::join(shape, fmt::format("{},", pick_space(rng)))),
      fmt::format(R"("data_offsets":{}[{},{}{}])", pick_space(rng), begin, pick_space(rng), end)};
  if (rng.below(2) == 0) fields.push_back(R"("note":{"a":[1,-2.5e3,true,null,"\u00e9"],"b":{}})");
  for (size_t i = fields.size(); i > 1; --i) std::swap(fields[i - 1], fields[rng.below(i)]);
  return fmt::format("{{{}{}{}}}", pick_space(rng), fmt::join(fields, ","), pick_space(rng));
}

/// A valid header: random names, dtypes, shapes (some empty, some huge), JSON order, spelling and spacing.
Built random_valid(Rng& rng) {
  std::vector<std::string> members;
  uint64_t at = 0;
  const size_t count = rng.below(12);
  for (size_t i = 0; i < count; ++i) {
    auto dtype = oracle::dtype_bits().begin();
    std::advance(dtype, static_cast<long>(rng.below(oracle::dtype_bits().size())));
    std::vector<uint64_t> shape;
    for (uint64_t rank = rng.below(4); rank > 0; --rank) shape.push_back(rng.below(9) == 0 ? 0 : 1 + rng.below(9));
    shape.push_back(rng.below(10) == 0 ? uint64_t{1} << 33 : 8);
    uint64_t bits = dtype->second;
    for (const uint64_t extent : shape) bits *= extent;
    members.push_back(spell(random_name(rng, i), rng) + pick_space(rng) + ":" +
                      random_body(rng, dtype->first, shape, at, at + bits / 8));
    at += bits / 8;
  }
  if (rng.below(2) == 0) members.push_back(R"("__metadata__":{"format":"pt","é":"\u00e9\n"})");
  if (rng.below(2) == 0) {
    for (size_t i = members.size(); i > 1; --i) std::swap(members[i - 1], members[rng.below(i)]);
  }
  const std::string json = fmt::format("{{{}}}{}", fmt::join(members, ","), std::string(rng.below(9), ' '));
  return Built{file_of(json), 8 + json.size() + at};
}

std::span<const std::byte> bytes_of(const std::string& text) { return as_bytes(text); }

void expect_same(const SafetensorsHeader& header, const oracle::Header& expected) {
  ASSERT_EQ(header.size(), expected.tensors.size());
  EXPECT_EQ(header.metadata(), expected.metadata);
  for (size_t i = 0; i < header.size(); ++i) {
    const HeaderTensor got = header[i];
    const oracle::Tensor& want = expected.tensors[i];
    EXPECT_EQ(got.name, want.name);
    EXPECT_EQ(tensor::info(got.dtype).safetensors, want.dtype);
    EXPECT_EQ(std::vector<uint64_t>(got.shape.begin(), got.shape.end()), want.shape);
    EXPECT_EQ(got.begin.count(), want.begin);
    EXPECT_EQ(got.end.count(), want.end);
    EXPECT_EQ(header.find(want.name), i);
  }
}

TEST(SafetensorsHeaderProperty, ReadsEveryValidHeaderAsTheObviousParserDoes) {
  const uint64_t seed = seed_of_run();
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 3000; ++round) {
    const Built built = random_valid(rng);
    const auto expected = oracle::read(built.file, built.file_bytes);
    ASSERT_TRUE(expected.has_value()) << "the generator is wrong: " << built.file.substr(8);
    const auto header = parse_safetensors_header(bytes_of(built.file), Bytes(built.file_bytes));
    ASSERT_TRUE(header.has_value()) << header.error().message << "\n" << built.file.substr(8);
    expect_same(*header, *expected);
    ASSERT_FALSE(testing::Test::HasFailure()) << built.file.substr(8);
  }
}

/// One slip such as a bad disk, a bad writer or a bad person makes.
void mutate(Built& built, Rng& rng) {
  static constexpr std::string_view kTokens = "{}[]:,\"\\0123456789-.eEtfnu \n\x80\xC3\xE2\xF0\xFF";
  std::string& file = built.file;
  const auto spot = [&] { return rng.below(3) == 0 ? rng.below(file.size()) : 8 + rng.below(file.size() - 7); };
  const size_t at = std::min<size_t>(spot(), file.size() - 1);
  switch (rng.below(8)) {
    case 0:
      file[at] = static_cast<char>(rng.next());
      break;
    case 1:
      file[at] = kTokens[rng.below(kTokens.size())];
      break;
    case 2:
      file.insert(at, 1, kTokens[rng.below(kTokens.size())]);
      break;
    case 3:
      file.erase(at, 1 + rng.below(4));
      break;
    case 4:
      file.insert(at, file.substr(rng.below(file.size()), rng.below(80)));
      break;
    case 5:
      built.file_bytes += rng.below(3) - 1;
      return;
    case 6: {
      const size_t digit = file.find_first_of("0123456789", at);
      if (digit != std::string::npos) file[digit] = static_cast<char>('0' + rng.below(10));
      break;
    }
    default:
      std::swap(file[at], file[std::min<size_t>(at + 1, file.size() - 1)]);
      break;
  }
}

/// Makes the length word fit again, so that most mutants reach the JSON.
void fix_length(Built& built, size_t bytes_before) {
  if (built.file.size() < 8) return;
  const std::string fixed = file_of(std::string_view(built.file).substr(8));
  built.file_bytes += fixed.size() - bytes_before;
  built.file = fixed;
}

TEST(SafetensorsHeaderProperty, AcceptsAMutatedHeaderExactlyWhenTheObviousParserDoes) {
  const uint64_t seed = seed_of_run();
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed + 1);
  int accepted = 0;
  for (int round = 0; round < 40000; ++round) {
    Built built = random_valid(rng);
    const size_t before = built.file.size();
    for (uint64_t slips = 1 + rng.below(2); slips > 0 && built.file.size() > 9; --slips) mutate(built, rng);
    if (rng.below(8) != 0) fix_length(built, before);
    const auto expected = oracle::read(built.file, built.file_bytes);
    const auto header = parse_safetensors_header(bytes_of(built.file), Bytes(built.file_bytes));
    ASSERT_EQ(header.has_value(), expected.has_value())
        << (header.has_value() ? "accepted" : header.error().message) << "\n"
        << built.file;
    if (!header.has_value()) continue;
    ++accepted;
    expect_same(*header, *expected);
    ASSERT_FALSE(testing::Test::HasFailure()) << built.file;
  }
  EXPECT_GT(accepted, 1000);  // else the mutations are too rough to test acceptance
  EXPECT_LT(accepted, 30000);
}

}  // namespace
}  // namespace towline::loader
