#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

namespace towline::python {

/// Sees the interpreter's end coming, by `atexit`.
void bind_gil(nanobind::module_& module);

/// While it lives its thread does not hold the GIL; where it did not before, nothing happens.
///
/// A daemon thread that comes back after the interpreter has begun to end stops here for ever: Python would end it by
/// unwinding its stack, which C++ frames do not survive (CPython, PyEval_RestoreThread). The process ends all the same.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;
  ~ReleasedGil();

 private:
  PyThreadState* const state_;
};

}  // namespace towline::python
