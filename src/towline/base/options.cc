#include "towline/base/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "towline/base/check.h"

namespace towline {
namespace {

constexpr std::string_view kPrefix = "TOWLINE_";
// Read by our scripts and tests, which run our programs in the same environment.
constexpr std::array<std::string_view, 5> kHarnessVariables = {"TOWLINE_BIN", "TOWLINE_BUILD", "TOWLINE_MODULE_PATH",
                                                               "TOWLINE_SEED", "TOWLINE_UPDATE_GOLDEN"};

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<uint64_t> parse_count(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_choice(std::string_view choices, std::string_view text) {
  while (!choices.empty()) {
    const size_t bar = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, bar) == text) return true;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

/// What is wrong with `text` as a value of `spec`, in the words of an error; empty when nothing is.
std::string_view expectation(const OptionSpec& spec, std::string_view text) {
  switch (spec.kind) {
    case OptionKind::kText:
      return {};
    case OptionKind::kBool:
      return parse_bool(text) ? "" : "true or false";
    case OptionKind::kCount:
      return parse_count(text) ? "" : "a whole number";
    case OptionKind::kBytes:
      return parse_bytes(text) ? "" : "a size such as 4096, 64KiB or 1.5GiB";
    case OptionKind::kDuration:
      return parse_duration(text) ? "" : "a time such as 250ms, 5s, 2m or never";
    case OptionKind::kChoice:
      return is_choice(spec.choices, text) ? "" : spec.choices;
  }
  return "nothing";
}

/// A value that has the form of its kind as a number to compare by; 0 for kinds that have no order.
uint64_t magnitude(OptionKind kind, std::string_view text) {
  if (kind == OptionKind::kCount) return *parse_count(text);
  if (kind == OptionKind::kBytes) return parse_bytes(text)->count();
  return kind == OptionKind::kDuration ? static_cast<uint64_t>(parse_duration(text)->count()) : 0;
}

/// Which bounds `text`, of the right form, leaves; empty when it keeps them.
std::string bounds_left(const OptionSpec& spec, std::string_view text) {
  const auto is_less = [&spec](std::string_view a, std::string_view b) {
    return magnitude(spec.kind, a) < magnitude(spec.kind, b);
  };
  const bool below = !spec.least.empty() && is_less(text, spec.least);
  const bool above = !spec.most.empty() && is_less(spec.most, text);
  if (!below && !above) return {};
  if (spec.most.empty()) return fmt::format("{} or more", spec.least);
  return spec.least.empty() ? fmt::format("{} or less", spec.most)
                            : fmt::format("from {} to {}", spec.least, spec.most);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // distances from the first i characters of a to each beginning of b
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

struct DurationUnit {
  std::string_view suffix;
  uint64_t nanoseconds;
};
constexpr uint64_t kSecond = 1000000000;
constexpr std::array kDurationUnits = {DurationUnit{"", kSecond},         DurationUnit{"ns", 1},
                                       DurationUnit{"us", 1000},          DurationUnit{"ms", 1000000},
                                       DurationUnit{"s", kSecond},        DurationUnit{"m", 60 * kSecond},
                                       DurationUnit{"min", 60 * kSecond}, DurationUnit{"h", 3600 * kSecond}};

/// Exact over the whole range, which a double is not.
std::optional<Nanoseconds> whole_duration(std::string_view digits, uint64_t unit_ns) {
  const std::optional<uint64_t> value = parse_count(digits);
  const std::optional<uint64_t> ns = value ? checked_multiply(*value, unit_ns) : std::nullopt;
  if (!ns || *ns > static_cast<uint64_t>(Nanoseconds::max().count())) return std::nullopt;
  return Nanoseconds(static_cast<int64_t>(*ns));
}

/// To the nearest nanosecond.
std::optional<Nanoseconds> decimal_duration(std::string_view text, uint64_t unit_ns) {
  double value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value, std::chars_format::fixed);
  if (error != std::errc() || end != last) return std::nullopt;
  const double ns = std::round(value * static_cast<double>(unit_ns));
  if (!(ns < 0x1p63)) return std::nullopt;
  return Nanoseconds(static_cast<int64_t>(ns));
}

std::string near_hint(std::string_view name, std::span<const std::string_view> candidates) {
  const auto near = nearest(name, candidates);
  return near ? fmt::format("; did you mean '{}'?", *near) : std::string("; see `towline config` for all of them");
}

std::string place(const std::string& where) { return where.empty() ? where : fmt::format(" ({})", where); }

}  // namespace

std::string_view origin_name(OptionOrigin origin) {
  constexpr std::array<std::string_view, 4> kNames = {"default", "file", "environment", "flag"};
  return kNames[static_cast<size_t>(origin)];
}

std::string flag_name(std::string_view name) {
  std::string flag = fmt::format("--{}", name);
  for (char& c : flag)
    if (c == '_' || c == '.') c = '-';
  return flag;
}

std::string environment_name(std::string_view name) {
  std::string variable = fmt::format("{}{}", kPrefix, name);
  for (char& c : variable) c = c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

Result<void> check_option(const OptionSpec& spec, std::string_view text) {
  const std::string_view expected = expectation(spec, text);
  const std::string outside = expected.empty() ? bounds_left(spec, text) : std::string();
  if (expected.empty() && outside.empty()) return {};
  return fail(Code::kInvalidArgument, "setting '{}' is '{}': expected {}", spec.name, text,
              expected.empty() ? std::string_view(outside) : expected);
}

Options::Options(std::span<const OptionSpec> table) : table_(table), values_(table.size()) {
  for (size_t i = 0; i < table.size(); ++i) {
    TOWLINE_CHECK(check_option(table[i], table[i].fallback).has_value(), table[i].name, table[i].fallback);
    values_[i].text = table[i].fallback;
  }
}

std::optional<size_t> Options::find_index(std::string_view name) const {
  const auto row =
      std::find_if(table_.begin(), table_.end(), [&](const OptionSpec& spec) { return spec.name == name; });
  return row == table_.end() ? std::nullopt : std::optional(static_cast<size_t>(row - table_.begin()));
}

size_t Options::get_index(std::string_view name, OptionKind kind) const {
  const std::optional<size_t> index = find_index(name);
  TOWLINE_CHECK(index.has_value(), "no such setting", name);
  TOWLINE_CHECK(table_[*index].kind == kind, "setting read as another kind", name);
  return *index;
}

Result<void> Options::set(std::string_view name, std::string_view text, OptionOrigin origin, std::string where) {
  const std::optional<size_t> index = find_index(name);
  if (!index) {
    std::vector<std::string_view> names;
    for (const OptionSpec& spec : table_) names.push_back(spec.name);
    return fail(Code::kInvalidArgument, "setting '{}'{} is unknown{}", name, place(where), near_hint(name, names));
  }
  Result<void> checked = check_option(table_[*index], text);
  if (!checked) return fail(Code::kInvalidArgument, "{}{}", checked.error().message, place(where));
  Value& value = values_[*index];
  if (origin >= value.origin) value = Value{std::string(text), origin, std::move(where)};
  return {};
}

Result<void> Options::set_from_environment(const std::map<std::string, std::string>& environment) {
  std::map<std::string, std::string_view> names;  // by variable
  for (const OptionSpec& spec : table_) names.emplace(environment_name(spec.name), spec.name);
  for (const auto& [variable, text] : environment) {
    if (!variable.starts_with(kPrefix)) continue;
    if (std::find(kHarnessVariables.begin(), kHarnessVariables.end(), variable) != kHarnessVariables.end()) continue;
    const auto known = names.find(variable);
    if (known == names.end()) {
      std::vector<std::string_view> variables;
      for (const auto& [candidate, name] : names) variables.push_back(candidate);
      return fail(Code::kInvalidArgument, "environment variable '{}' is unknown{}", variable,
                  near_hint(variable, variables));
    }
    TOWLINE_TRY(set(known->second, text, OptionOrigin::kEnvironment, variable));
  }
  return {};
}

Result<void> Options::set_from_file(std::string_view text, std::string_view path) {
  std::map<std::string_view, size_t> lines;  // by name
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view raw = text.substr(0, end);
    const std::string_view line = trim(raw.substr(0, raw.find('#')));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      return fail(Code::kInvalidArgument, "{}:{}: '{}' is not a setting: write `name = value`", path, number, line);
    const std::string_view name = trim(line.substr(0, equals));
    if (const auto [first, is_new] = lines.emplace(name, number); !is_new)
      return fail(Code::kInvalidArgument, "{}:{}: '{}' is set in line {} already; keep one of the two", path, number,
                  name, first->second);
    TOWLINE_TRY(set(name, trim(line.substr(equals + 1)), OptionOrigin::kFile, fmt::format("{}:{}", path, number)));
  }
  return {};
}

const Options::Value& Options::value(std::string_view name) const {
  const std::optional<size_t> index = find_index(name);
  TOWLINE_CHECK(index.has_value(), "no such setting", name);
  return values_[*index];
}

std::string Options::text(std::string_view name) const { return value(name).text; }
bool Options::flag(std::string_view name) const {
  return *parse_bool(values_[get_index(name, OptionKind::kBool)].text);
}
uint64_t Options::count(std::string_view name) const {
  return *parse_count(values_[get_index(name, OptionKind::kCount)].text);
}
Bytes Options::bytes(std::string_view name) const {
  return *parse_bytes(values_[get_index(name, OptionKind::kBytes)].text);
}
Nanoseconds Options::duration(std::string_view name) const {
  return *parse_duration(values_[get_index(name, OptionKind::kDuration)].text);
}

std::optional<bool> parse_bool(std::string_view text) {
  constexpr std::array<std::string_view, 6> kTrue = {"y", "yes", "on", "true", "enable", "1"};
  constexpr std::array<std::string_view, 6> kFalse = {"n", "no", "off", "false", "disable", "0"};
  const std::string lower = to_lower(text);
  if (std::find(kTrue.begin(), kTrue.end(), lower) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), lower) != kFalse.end()) return false;
  return std::nullopt;
}

std::optional<Nanoseconds> parse_duration(std::string_view text) {
  const std::string lower = to_lower(text);
  if (lower == "never") return Nanoseconds::max();
  const std::string_view all = lower;
  const size_t digits = std::min(all.find_first_not_of("0123456789"), all.size());
  const size_t number = std::min(all.find_first_not_of("0123456789."), all.size());
  const std::string_view suffix = trim(all.substr(number));
  if (digits == 0) return std::nullopt;
  for (const DurationUnit& unit : kDurationUnits) {
    if (unit.suffix != suffix) continue;
    return number == digits ? whole_duration(all.substr(0, digits), unit.nanoseconds)
                            : decimal_duration(all.substr(0, number), unit.nanoseconds);
  }
  return std::nullopt;
}

std::optional<std::string_view> nearest(std::string_view name, std::span<const std::string_view> candidates) {
  std::optional<std::string_view> best;
  size_t best_distance = std::max<size_t>(1, name.size() / 3) + 1;  // a slip changes at most a third of the word
  for (const std::string_view candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace towline
