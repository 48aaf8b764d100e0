#include "reshard_megatron.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

#include "errors.h"
#include "towline/reshard/megatron_aliases.h"

namespace towline::python {
namespace nb = nanobind;
using namespace nanobind::literals;

namespace {

using Held = std::optional<std::tuple<size_t, uint64_t, uint64_t>>;

/// (name's index, its whole shape, offset, extent, first element) of each piece.
nb::list aliases_of(std::string name, std::string role, size_t hf_names, tensor::Shape global_shape,
                    tensor::Shape local_shape, const Held& held, std::map<std::string, std::string> extras) {
  reshard::MegatronTensor tensor{std::move(name),         std::move(role),        hf_names,
                                 std::move(global_shape), std::move(local_shape), {},
                                 std::move(extras)};
  if (held) tensor.held = reshard::AxisRange{std::get<0>(*held), std::get<1>(*held), std::get<2>(*held)};
  nb::list pieces;
  for (const reshard::AliasPiece& piece : take_or_raise(reshard::megatron_aliases(tensor)))
    pieces.append(
        nb::make_tuple(piece.hf_name, piece.hf_shape, piece.box.offset, piece.box.extent, piece.first_element));
  return pieces;
}

}  // namespace

void bind_reshard_megatron(nb::module_& module) {
  module.def("megatron_aliases", &aliases_of, "name"_a, "role"_a, "hf_names"_a, "global_shape"_a, "local_shape"_a,
             "held"_a.none(), "extras"_a);
}

}  // namespace towline::python
