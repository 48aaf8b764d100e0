#pragma once

#include <nanobind/nanobind.h>

namespace towline::python {

/// The part of the room `reshard` that knows Megatron's storage.
void bind_reshard_megatron(nanobind::module_& module);

}  // namespace towline::python
