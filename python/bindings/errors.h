#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "gil.h"
#include "towline/base/result.h"

namespace towline::python {

/// Adds `_core.raise_error`, with which tests reach every row of the class table.
void bind_errors(nanobind::module_& module);

/// Raises the class that `error.code` picks, with code, scope and message. Takes the GIL.
[[noreturn]] void raise(const Error& error);

/// The value of a Result, or the exception: the one place where a failure stops being a value.
template <typename T>
T take_or_raise(Result<T>&& result) {
  if (!result.has_value()) raise(result.error());
  return std::move(result).value();
}
inline void take_or_raise(Result<void>&& result) {
  if (!result.has_value()) raise(result.error());
}

/// Runs a call that may wait without the GIL, then takes its value with it.
template <typename Call>
auto without_gil(Call&& call) {
  auto result = [&] {
    const ReleasedGil released;
    return std::forward<Call>(call)();
  }();
  return take_or_raise(std::move(result));
}

}  // namespace towline::python
