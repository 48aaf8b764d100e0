#include "errors.h"

#include <nanobind/stl/string.h>

#include <string>

namespace towline::python {
namespace nb = nanobind;

// towline.errors.make(code, scope, message) -> the exception to raise. The class table is Python's (errors.py), so that
// the classes have readable sources and stubs; the code decides, there as here by its canonical name.
[[noreturn]] void raise(const Error& error) {
  nb::gil_scoped_acquire acquired;
  const nb::object exception =
      nb::module_::import_("towline.errors")
          .attr("make")(std::string(code_name(error.code)), std::string(scope_name(error.scope)), error.message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

namespace {

Code code_from_name(const std::string& name) {
  for (int value = 1; value <= static_cast<int>(Code::kUnauthenticated); ++value) {
    const auto code = static_cast<Code>(value);
    if (code_name(code) == name) return code;
  }
  return Code::kUnknown;
}

}  // namespace

void bind_errors(nb::module_& module) {
  // For the tests of the mapping: raises what the core raises for a code, by its canonical name.
  module.def(
      "raise_error",
      [](const std::string& code, const std::string& message) {
        raise(Error{code_from_name(code), Scope::kOperation, message});
      },
      nb::arg("code"), nb::arg("message"));
}

}  // namespace towline::python
