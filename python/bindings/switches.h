#pragma once

#include <nanobind/nanobind.h>

namespace towline::python {

/// How the environment switches of ModelExpress are read: the rules of transfer/switches.h, as functions of a text.
void bind_switches(nanobind::module_& module);

}  // namespace towline::python
