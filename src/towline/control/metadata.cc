#include "towline/control/metadata.h"

#include <array>
#include <charconv>

namespace towline::control {

std::string_view status_name(SourceStatus status) {
  constexpr std::array<std::string_view, 4> kNames = {"unknown", "initializing", "ready", "stale"};
  return kNames[static_cast<size_t>(status)];
}

std::optional<uint64_t> training_step(const SourceIdentity& identity) {
  const auto at = identity.extra_parameters.find("training_step");
  if (at == identity.extra_parameters.end()) return std::nullopt;
  const std::string& text = at->second;
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return step;
}

}  // namespace towline::control
