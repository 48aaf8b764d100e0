#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/bytes.h"

namespace towline::cli {

/// A JSON object whose keys keep the order in which they were set: what `--json` and ready files print. Copies are
/// deep. Text that is not UTF-8 is written with replacement characters.
class Document {
 public:
  Document();
  explicit Document(std::string_view schema);  ///< sets "schema"
  Document(const Document& other);
  Document(Document&&) noexcept;
  Document& operator=(Document other) noexcept;
  ~Document();

  Document& set(std::string_view key, std::string_view value);
  Document& set(std::string_view key, const char* value) { return set(key, std::string_view(value)); }
  Document& set(std::string_view key, const std::string& value) { return set(key, std::string_view(value)); }
  Document& set(std::string_view key, bool value);
  Document& set(std::string_view key, uint64_t value);
  Document& set(std::string_view key, int value) { return set_signed(key, value); }
  Document& set(std::string_view key, int64_t value) { return set_signed(key, value); }
  Document& set(std::string_view key, uint32_t value) { return set(key, uint64_t{value}); }
  Document& set(std::string_view key, double value);
  Document& set(std::string_view key, Bytes value) { return set(key, value.count()); }
  Document& set(std::string_view key, const Document& value);
  Document& set(std::string_view key, const std::vector<Document>& values);
  Document& set(std::string_view key, const std::vector<std::string>& values);
  Document& set(std::string_view key, const std::vector<uint64_t>& values);
  Document& set_null(std::string_view key);
  template <typename T>
  Document& set(std::string_view key, const std::optional<T>& value) {
    return value ? set(key, *value) : set_null(key);
  }

  std::string text() const;  ///< indented, ending in a line feed

 private:
  struct State;
  Document& set_signed(std::string_view key, int64_t value);
  std::unique_ptr<State> state_;
};

}  // namespace towline::cli
