// The parser of safetensors headers under libFuzzer: it never crashes, and accepts exactly what the slow, obvious
// parser accepts (tests/property/loader/header_oracle.h), with the same table.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "../property/loader/header_oracle.h"
#include "towline/loader/safetensors_header.h"

namespace {

using towline::Bytes;
using namespace towline::loader;

void require(bool holds) {
  if (!holds) std::abort();
}

void require_same(const SafetensorsHeader& header, const oracle::Header& expected) {
  require(header.size() == expected.tensors.size());
  require(header.metadata() == expected.metadata);
  for (size_t i = 0; i < header.size(); ++i) {
    const HeaderTensor got = header[i];
    const oracle::Tensor& want = expected.tensors[i];
    require(got.name == want.name && towline::tensor::info(got.dtype).safetensors == want.dtype);
    require(std::vector<uint64_t>(got.shape.begin(), got.shape.end()) == want.shape);
    require(got.begin.count() == want.begin && got.end.count() == want.end);
    require(header.find(want.name) == i);
  }
}

void compare(std::string_view start, uint64_t file_bytes) {
  const auto bytes = std::as_bytes(std::span(start.data(), start.size()));
  const auto header = parse_safetensors_header(bytes, Bytes(file_bytes));
  const auto expected = oracle::read(start, file_bytes);
  require(header.has_value() == expected.has_value());
  if (header.has_value()) require_same(*header, *expected);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  compare(input, size);  // the length word is the fuzzer's, too
  // And as the JSON of a file that is just as long as its offsets may want.
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(size >> (8 * i) & 0xFF));
  file.append(input);
  for (const uint64_t data_bytes : {0u, 1u, 2u, 4u, 8u, 16u, 24u, 64u}) compare(file, file.size() + data_bytes);
  return 0;
}
