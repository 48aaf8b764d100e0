#include <nanobind/nanobind.h>

#include "agent_core.h"
#include "errors.h"
#include "gil.h"
#include "replica.h"
#include "reshard.h"
#include "reshard_megatron.h"
#include "switches.h"

NB_MODULE(_core, module) {
  module.doc() = "Towline's C++ core. Use the package towline; this module is its inside.";
  // An exception that a caller keeps holds frames, and those the object that raised it: not a leak of ours to report.
  nanobind::set_leak_warnings(false);
  module.attr("version") = TOWLINE_VERSION;
  towline::python::bind_gil(module);
  towline::python::bind_errors(module);
  towline::python::bind_replica(module);
  towline::python::bind_agent_core(module);
  towline::python::bind_reshard(module);
  towline::python::bind_reshard_megatron(module);
  towline::python::bind_switches(module);
}
