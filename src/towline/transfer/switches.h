#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// How the environment switches of ModelExpress are read (transfer.md 3.1). Pure: the compatibility faces hand in what
// the environment says at each use. Towline's own settings follow base/options.h instead.

namespace towline::transfer {

/// A value and whether the text had to be replaced by it; who reads the switch warns with its name.
template <typename T>
struct Parsed {
  T value{};
  bool bad_text = false;
};

using SwitchText = std::optional<std::string_view>;  ///< nothing: not set

/// On when it is exactly `1`.
bool parse_strict_one(SwitchText text);
/// On for 1, true, yes, on, in any case and with white space around.
bool parse_truthy(SwitchText text);
/// On for 1 and true, in any case.
bool parse_one_or_true(SwitchText text);
/// Truthy, or 0, false, no, off; anything else is the default, and bad.
Parsed<bool> parse_switch(SwitchText text, bool otherwise);
/// A whole number, white space around it allowed.
Parsed<int64_t> parse_whole(SwitchText text, int64_t otherwise);
Parsed<double> parse_real(SwitchText text, double otherwise);
/// A real that is finite and above zero.
Parsed<double> parse_positive(SwitchText text, double otherwise);

/// `MX_NIXL_BACKEND`: trimmed, upper case, `UCX` when empty or not set; nothing for what is neither UCX nor LIBFABRIC.
std::optional<std::string> parse_nixl_backend(SwitchText text);

/// `MX_RDMA_NIC_PIN` read for one device: nothing to do, the named card, or a probe.
struct NicPin {
  enum class Kind : uint8_t { kOff, kNamed, kProbe } kind = Kind::kOff;
  std::string card = {};
  friend bool operator==(const NicPin&, const NicPin&) = default;
};
NicPin parse_nic_pin(SwitchText text, size_t device_index);

}  // namespace towline::transfer
