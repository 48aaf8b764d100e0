#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"
#include "towline/base/result.h"

namespace towline {

enum class OptionKind : uint8_t { kText, kBool, kCount, kBytes, kDuration, kChoice };

/// One row of the settings table: everything that documents, parses and shows a setting.
struct OptionSpec {
  std::string_view name;  ///< `deadline`, `transport.pool_reg`: kebab flag and TOWLINE_ environment name follow from it
  OptionKind kind;
  std::string_view fallback;  ///< the default, in the form the user would write
  std::string_view unit;      ///< `bytes`, `seconds`, empty
  std::string_view help;
  std::string_view choices = {};  ///< `a|b|c` for kChoice
  std::string_view least = {};    ///< bounds of a count, a size or a time, as a user would write them; empty: none
  std::string_view most = {};
};

/// Every setting there is, by name. `docs/settings.md` is generated from it.
std::span<const OptionSpec> option_table();
/// That page: a row a setting. A test holds the page against it.
std::string option_table_markdown(std::span<const OptionSpec> table);

/// `--load-mode` and `TOWLINE_LOAD_MODE` of `load_mode`.
std::string flag_name(std::string_view name);
std::string environment_name(std::string_view name);
/// Whether `text` is of the option's kind and within its bounds; the error says what would be.
Result<void> check_option(const OptionSpec& spec, std::string_view text);

enum class OptionOrigin : uint8_t { kDefault, kFile, kEnvironment, kFlag };
std::string_view origin_name(OptionOrigin origin);

/// Values of the table: flag > environment > file > default; each remembers where it came from. A value.
class Options {
 public:
  explicit Options(std::span<const OptionSpec> table = option_table());

  /// Sets `name` from one origin; a weaker origin than the present one is checked but has no effect.
  /// Errors: kInvalidArgument - unknown name (the nearest one is named), or a text that is not of the option's kind.
  Result<void> set(std::string_view name, std::string_view text, OptionOrigin origin, std::string where = {});
  /// Takes TOWLINE_ variables from `environment` (as `extern char** environ`); unknown TOWLINE_ names are errors, but
  /// for those that only scripts and tests read (TOWLINE_BIN, TOWLINE_BUILD, TOWLINE_MODULE_PATH, TOWLINE_SEED,
  /// TOWLINE_UPDATE_GOLDEN).
  Result<void> set_from_environment(const std::map<std::string, std::string>& environment);
  /// `name = value` lines, `#` comments, each name once. `path` is for messages.
  Result<void> set_from_file(std::string_view text, std::string_view path);

  /// The value in its type. A name that is not in the table, or of another kind, is a bug and aborts.
  std::string text(std::string_view name) const;
  bool flag(std::string_view name) const;
  uint64_t count(std::string_view name) const;
  Bytes bytes(std::string_view name) const;
  Nanoseconds duration(std::string_view name) const;

  struct Value {
    std::string text;
    OptionOrigin origin = OptionOrigin::kDefault;
    std::string where;  ///< the variable, or file:line
  };
  const Value& value(std::string_view name) const;
  std::span<const OptionSpec> table() const { return table_; }

 private:
  std::optional<size_t> find_index(std::string_view name) const;
  size_t get_index(std::string_view name, OptionKind kind) const;

  std::span<const OptionSpec> table_;
  std::vector<Value> values_;  ///< one a row of the table
};

/// `y yes on true enable 1` and `n no off false disable 0`, any case; anything else is not a bool.
std::optional<bool> parse_bool(std::string_view text);
/// `250ms`, `5s`, `2m`, `1h`, `1.5s`; a bare number is seconds; `never` is Nanoseconds::max().
std::optional<Nanoseconds> parse_duration(std::string_view text);
/// The candidate with the least edit distance, if it is near enough to be a likely slip.
std::optional<std::string_view> nearest(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace towline
