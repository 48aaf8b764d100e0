#pragma once

#include <nanobind/nanobind.h>

namespace towline::python {

/// Geometry, the per-copy planner, copies between addresses, the interop digest: what the refit face delegates to.
void bind_reshard(nanobind::module_& module);

}  // namespace towline::python
