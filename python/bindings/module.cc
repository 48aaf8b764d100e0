#include <nanobind/nanobind.h>

#include "errors.h"
#include "gil.h"
#include "replica.h"

NB_MODULE(_core, module) {
  module.doc() = "Towline's C++ core. Use the package towline; this module is its inside.";
  module.attr("version") = TOWLINE_VERSION;
  towline::python::bind_gil(module);
  towline::python::bind_errors(module);
  towline::python::bind_replica(module);
}
