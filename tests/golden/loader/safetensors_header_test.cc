#include "towline/loader/safetensors_header.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "golden/loader/golden_text.h"
#include "towline/base/hash.h"

namespace towline::loader {
namespace {

struct Case {
  const char* title;
  std::string json;
  uint64_t data_bytes = 0;
  HeaderLimits limits = {};
};

std::string with_length(std::string_view json, uint64_t length) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(length >> (8 * i) & 0xFF));
  return file.append(json);
}

std::string outcome(std::string_view file, uint64_t file_bytes, const HeaderLimits& limits) {
  const auto header = parse_safetensors_header(as_bytes(file), Bytes(file_bytes), limits);
  return header.has_value() ? "accepted" : to_string(header.error());
}

std::string one(std::string_view fields) { return fmt::format(R"({{"w":{{{}}}}})", fields); }
std::string u8(std::string_view name, uint64_t begin, uint64_t end) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name, end - begin, begin, end);
}
std::string object(const std::vector<std::string>& members) { return fmt::format("{{{}}}", fmt::join(members, ",")); }

std::vector<Case> structure_cases() {
  const std::string good = R"("dtype":"U8","shape":[2],"data_offsets":[0,2])";
  return {
      {"nothing", "", 0},
      {"an array", "[]", 0},
      {"a byte order mark", "\xEF\xBB\xBF{}", 0},
      {"cut in the middle", R"({"w":{"dtype":"U8","sha)", 0},
      {"cut after a comma", R"({"w":{"dtype":"U8",)", 0},
      {"garbage after the header", one(good) + "x", 2},
      {"NUL after the header", one(good) + std::string(1, '\0'), 2},
      {"a comma too many", R"({"w":{)" + good + "},}", 2},
      {"a comma too few", one(R"("dtype":"U8" "shape":[2],"data_offsets":[0,2])"), 2},
      {"a single quote", R"({'w':{}})", 0},
      {"not UTF-8", "{\"w\xFF\":{" + good + "}}", 2},
      {"overlong UTF-8", "{\"w\xC0\xAF\":{" + good + "}}", 2},
      {"a surrogate in UTF-8", "{\"w\xED\xA0\x80\":{" + good + "}}", 2},
      {"half a surrogate pair", R"({"w\ud800":{)" + good + "}}", 2},
      {"an unknown escape", R"({"w\x":{)" + good + "}}", 2},
      {"a control character in a name", "{\"w\n\":{" + good + "}}", 2},
      {"NUL in a name", R"({"w\u0000x":{)" + good + "}}", 2},
      {"an empty name", R"({"":{)" + good + "}}", 2},
      {"nested too deep", one(good + R"(,"x":)" + std::string(200, '[') + std::string(200, ']')), 2},
      {"a broken value of an unknown field", one(good + R"(,"x":[1,02])"), 2},
      {"a tensor that is an array", R"({"w":["U8",[2],[0,2]]})", 2},
      {"a tensor that is null", R"({"w":null})", 0},
  };
}

std::vector<Case> field_cases() {
  const std::string good = R"("dtype":"U8","shape":[2],"data_offsets":[0,2])";
  return {
      {"no dtype", one(R"("shape":[2],"data_offsets":[0,2])"), 2},
      {"no shape", one(R"("dtype":"U8","data_offsets":[0,2])"), 2},
      {"no data_offsets", one(R"("dtype":"U8","shape":[2])"), 2},
      {"dtype twice", one(R"("dtype":"U8",)" + good), 2},
      {"dtype twice, once escaped", one(R"("\u0064type":"U8",)" + good), 2},
      {"an unknown field twice", one(good + R"(,"x":1,"\u0078":2)"), 2},
      {"an unknown dtype", one(R"("dtype":"F13","shape":[2],"data_offsets":[0,2])"), 2},
      {"a dtype in lower case", one(R"("dtype":"u8","shape":[2],"data_offsets":[0,2])"), 2},
      {"an empty dtype", one(R"("dtype":"","shape":[2],"data_offsets":[0,2])"), 2},
      {"a dtype that is a number", one(R"("dtype":8,"shape":[2],"data_offsets":[0,2])"), 2},
      {"a negative extent", one(R"("dtype":"U8","shape":[-2],"data_offsets":[0,2])"), 2},
      {"a fractional extent", one(R"("dtype":"U8","shape":[2.0],"data_offsets":[0,2])"), 2},
      {"an extent with an exponent", one(R"("dtype":"U8","shape":[2e0],"data_offsets":[0,2])"), 2},
      {"an extent with a leading zero", one(R"("dtype":"U8","shape":[02],"data_offsets":[0,2])"), 2},
      {"an extent over 64 bits", one(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,2])"), 2},
      {"an element count over 64 bits", one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0},
      {"a size over 64 bits", one(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), 0},
      {"half a byte", one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2},
      {"size and shape differ", one(R"("dtype":"F32","shape":[2,3],"data_offsets":[0,20])"), 20},
      {"one offset", one(R"("dtype":"U8","shape":[2],"data_offsets":[2])"), 2},
      {"three offsets", one(R"("dtype":"U8","shape":[2],"data_offsets":[0,2,2])"), 2},
      {"begin after end", one(R"("dtype":"U8","shape":[2],"data_offsets":[2,0])"), 2},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0},
      {"a metadata key twice", R"({"__metadata__":{"a":"b","\u0061":"c"}})", 0},
      {"a metadata value that is a number", R"({"__metadata__":{"a":1}})", 0},
      {"metadata that is a list", R"({"__metadata__":[]})", 0},
  };
}

std::vector<Case> layout_cases() {
  return {
      {"a name twice", object({u8("a", 0, 2), u8("b", 2, 4), u8("a", 4, 6)}), 6},
      {"a name twice, once escaped", object({u8("a", 0, 2), u8("\\u0061", 2, 4)}), 4},
      {"overlap", object({u8("a", 0, 4), u8("b", 2, 6)}), 6},
      {"two tensors on the same bytes", object({u8("a", 0, 4), u8("b", 0, 4)}), 4},
      {"an empty tensor inside another", object({u8("a", 0, 4), u8("b", 2, 2)}), 4},
      {"a hole", object({u8("a", 0, 4), u8("b", 5, 6)}), 6},
      {"a hole at the start", object({u8("a", 1, 4)}), 4},
      {"bytes after the last tensor", object({u8("a", 0, 4)}), 5},
      {"bytes without a tensor", "{}", 5},
      {"a truncated file", object({u8("a", 0, 4), u8("b", 4, 3000000000)}), 2147483648},
      {"a long name", object({u8(std::string(300, 'n'), 0, 2)}), 1},
      {"a name beyond ASCII", object({u8("重み.é", 0, 2)}), 1},
  };
}

std::vector<Case> limit_cases() {
  const std::string two = object({u8("a", 0, 1), u8("bcd", 1, 2)});
  HeaderLimits bytes, tensors, rank, name, unknown, metadata;
  bytes.header_bytes_max = Bytes(10);
  tensors.tensors_max = 1;
  rank.rank_max = 0;
  name.name_bytes_max = 2;
  unknown.unknown_fields_max = 0;
  metadata.metadata_entries_max = 0;
  return {
      {"header bytes", two, 2, bytes},
      {"tensors", two, 2, tensors},
      {"rank", two, 2, rank},
      {"name bytes", two, 2, name},
      {"unknown fields", one(R"("x":1)"), 0, unknown},
      {"metadata entries", R"({"__metadata__":{"a":"b"}})", 0, metadata},
  };
}

std::string outcomes(std::string_view group, const std::vector<Case>& cases) {
  std::string text = fmt::format("# {}\n", group);
  for (const Case& one_case : cases) {
    const std::string file = with_length(one_case.json, one_case.json.size());
    text +=
        fmt::format("{}\n    {}\n", one_case.title, outcome(file, file.size() + one_case.data_bytes, one_case.limits));
  }
  return text;
}

std::string length_word_outcomes() {
  std::string text = "# length word\n";
  text += fmt::format("an empty file\n    {}\n", outcome("", 0, {}));
  text += fmt::format("seven bytes\n    {}\n", outcome("1234567", 7, {}));
  text += fmt::format("a header longer than the file\n    {}\n", outcome(with_length("{}", 3), 10, {}));
  text += fmt::format("2^64 - 1\n    {}\n", outcome(with_length("{}", UINT64_MAX), 10, {}));
  text += fmt::format("2^63 in a file said to be as large\n    {}\n",
                      outcome(with_length("{}", uint64_t{1} << 63), UINT64_MAX, {}));
  text += fmt::format("less of the file than the header takes\n    {}\n", outcome(with_length("{", 2), 10, {}));
  return text;
}

TEST(SafetensorsHeaderGolden, TellsTensorByteAndCauseOfEveryRefusal) {
  const std::string text = length_word_outcomes() + outcomes("structure", structure_cases()) +
                           outcomes("fields", field_cases()) + outcomes("layout", layout_cases()) +
                           outcomes("limits", limit_cases());
  expect_golden("safetensors_header.txt", text);
}

}  // namespace
}  // namespace towline::loader
