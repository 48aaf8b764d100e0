#include "towline/transfer/switches.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace towline::transfer {
namespace {

constexpr std::array<std::string_view, 4> kOn = {"1", "true", "yes", "on"};
constexpr std::array<std::string_view, 4> kOff = {"0", "false", "no", "off"};

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string mapped(std::string_view text, char from, char to, int shift) {
  std::string out(text);
  for (char& c : out)
    if (c >= from && c <= to) c = static_cast<char>(c + shift);
  return out;
}
std::string lower(std::string_view text) { return mapped(text, 'A', 'Z', 'a' - 'A'); }
std::string upper(std::string_view text) { return mapped(text, 'a', 'z', 'A' - 'a'); }

bool is_one_of(std::string_view text, const std::array<std::string_view, 4>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

/// The whole of the text as a number, one sign allowed; nothing when it is not.
template <typename T>
std::optional<T> number(std::string_view text) {
  text = trimmed(text);
  const bool has_plus = text.size() > 1 && text.front() == '+' && text[1] != '-' && text[1] != '+';
  if (has_plus) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename T>
Parsed<T> parse_number(SwitchText text, T otherwise) {
  if (!text) return {otherwise, false};
  const std::optional<T> value = number<T>(*text);
  return {value.value_or(otherwise), !value};
}

}  // namespace

bool parse_strict_one(SwitchText text) { return text == "1"; }

bool parse_truthy(SwitchText text) { return text && is_one_of(lower(trimmed(*text)), kOn); }

bool parse_one_or_true(SwitchText text) { return text && (*text == "1" || lower(*text) == "true"); }

Parsed<bool> parse_switch(SwitchText text, bool otherwise) {
  if (!text) return {otherwise, false};
  const std::string word = lower(trimmed(*text));
  if (is_one_of(word, kOn)) return {true, false};
  if (is_one_of(word, kOff)) return {false, false};
  return {otherwise, true};
}

Parsed<int64_t> parse_whole(SwitchText text, int64_t otherwise) { return parse_number(text, otherwise); }

Parsed<double> parse_real(SwitchText text, double otherwise) { return parse_number(text, otherwise); }

Parsed<double> parse_positive(SwitchText text, double otherwise) {
  const Parsed<double> real = parse_real(text, otherwise);
  const bool is_good = std::isfinite(real.value) && real.value > 0;
  return is_good ? real : Parsed<double>{otherwise, text.has_value()};
}

std::optional<std::string> parse_nixl_backend(SwitchText text) {
  std::string name = upper(trimmed(text.value_or("")));
  if (name.empty()) return "UCX";
  if (name != "UCX" && name != "LIBFABRIC") return std::nullopt;
  return name;
}

NicPin parse_nic_pin(SwitchText text, size_t device_index) {
  const std::string_view value = trimmed(text.value_or(""));
  const std::string word = lower(value);
  if (word.empty() || word == "off" || word == "0" || word == "false" || word == "no") return {};
  if (value.find(',') == std::string_view::npos) return {NicPin::Kind::kProbe, {}};
  std::string_view rest = value;
  for (size_t i = 0; i < device_index; ++i) {
    const size_t comma = rest.find(',');
    if (comma == std::string_view::npos) return {};
    rest.remove_prefix(comma + 1);
  }
  const std::string_view card = trimmed(rest.substr(0, rest.find(',')));
  return card.empty() ? NicPin{} : NicPin{NicPin::Kind::kNamed, std::string(card)};
}

}  // namespace towline::transfer
