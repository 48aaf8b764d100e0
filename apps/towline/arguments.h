#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/bytes.h"

namespace towline::cli {

/// What was typed after a verb, by long name without dashes; positionals by their own name. Parsed and known to be of
/// this verb. A value.
class Arguments {
 public:
  void add(const std::string& name, std::string value) { values_[name].push_back(std::move(value)); }

  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  std::optional<std::string> find(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second.back());
  }
  std::string get(std::string_view name) const { return find(name).value_or(std::string()); }
  /// Of flags whose kind says so: they were checked when they were parsed.
  uint64_t count(std::string_view name, uint64_t fallback) const {
    const std::optional<std::string> text = find(name);
    return text ? std::stoull(*text) : fallback;
  }
  Bytes bytes(std::string_view name, Bytes fallback) const {
    const std::optional<std::string> text = find(name);
    return text ? parse_bytes(*text).value() : fallback;
  }
  std::vector<std::string> list(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::vector<std::string>() : found->second;
  }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

}  // namespace towline::cli
