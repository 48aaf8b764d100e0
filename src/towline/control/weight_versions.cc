#include "towline/control/weight_versions.h"

#include <array>

#include "towline/base/hash.h"

namespace towline::control {

std::string_view role_name(WorkerRole role) {
  constexpr std::array<std::string_view, 3> kNames = {"unspecified", "trainer", "generator"};
  return kNames[static_cast<size_t>(role)];
}

std::string_view state_name(VersionState state) {
  constexpr std::array<std::string_view, 4> kNames = {"unspecified", "staging", "ready", "releasing"};
  return kNames[static_cast<size_t>(state)];
}

std::string lease_id_of(const std::string& version_uid, const std::string& worker_id) {
  std::string both = version_uid;
  both += '\0';
  both += worker_id;
  const auto hash = sha256(as_bytes(both));
  return to_hex(std::span(hash).first(4));
}

}  // namespace towline::control
