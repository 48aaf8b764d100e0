#include "switches.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "towline/transfer/switches.h"

namespace towline::python {
namespace nb = nanobind;
using namespace nanobind::literals;

namespace {

using Text = std::optional<std::string>;

/// (value, whether the text was bad).
template <auto kParse, typename T>
nb::tuple parsed(const Text& text, T otherwise) {
  const auto result = kParse(text ? transfer::SwitchText(*text) : std::nullopt, otherwise);
  return nb::make_tuple(result.value, result.bad_text);
}

template <bool (*kParse)(transfer::SwitchText)>
bool is_on(const Text& text) {
  return kParse(text ? transfer::SwitchText(*text) : std::nullopt);
}

}  // namespace

void bind_switches(nb::module_& module) {
  module.def("parse_strict_one", &is_on<transfer::parse_strict_one>, "text"_a.none());
  module.def("parse_truthy", &is_on<transfer::parse_truthy>, "text"_a.none());
  module.def("parse_one_or_true", &is_on<transfer::parse_one_or_true>, "text"_a.none());
  module.def("parse_switch", &parsed<transfer::parse_switch, bool>, "text"_a.none(), "otherwise"_a);
  module.def("parse_whole", &parsed<transfer::parse_whole, int64_t>, "text"_a.none(), "otherwise"_a);
  module.def("parse_real", &parsed<transfer::parse_real, double>, "text"_a.none(), "otherwise"_a);
  module.def("parse_positive", &parsed<transfer::parse_positive, double>, "text"_a.none(), "otherwise"_a);
  module.def(
      "parse_nixl_backend",
      [](const Text& text) { return transfer::parse_nixl_backend(text ? transfer::SwitchText(*text) : std::nullopt); },
      "text"_a.none());
  module.def(
      "parse_nic_pin",
      [](const Text& text, size_t device) {
        const transfer::NicPin pin = transfer::parse_nic_pin(text ? transfer::SwitchText(*text) : std::nullopt, device);
        return nb::make_tuple(pin.kind == transfer::NicPin::Kind::kProbe, pin.card);
      },
      "text"_a.none(), "device"_a);
}

}  // namespace towline::python
