#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "towline/base/check.h"
#include "towline/base/error.h"

namespace towline {

/// A value or an Error. Mirrors the names of std::expected, which C++20 lacks; differs in that an Error converts
/// implicitly, so a failing function says `return fail(...)`. Dropping one is a compile error.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  /// From what converts to T, so that `return std::make_unique<Derived>()` works for Result<unique_ptr<Base>>.
  template <typename U>
  requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, T> && !std::is_same_v<std::remove_cvref_t<U>, Error>)
      Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}  // NOLINT

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& value() & {
    TOWLINE_CHECK(has_value(), error_text());
    return std::get<0>(state_);
  }
  const T& value() const& {
    TOWLINE_CHECK(has_value(), error_text());
    return std::get<0>(state_);
  }
  T&& value() && {
    TOWLINE_CHECK(has_value(), error_text());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  template <typename U>
  T value_or(U&& other) const& {
    return has_value() ? std::get<0>(state_) : static_cast<T>(std::forward<U>(other));
  }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::string error_text() const { return has_value() ? std::string() : to_string(std::get<1>(state_)); }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return !failed_; }
  void value() const { TOWLINE_CHECK(!failed_, to_string(error_)); }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool failed_ = false;
};

namespace internal {
template <typename T>
T take(Result<T>&& result) {
  return std::move(result).value();
}
inline void take(Result<void>&&) {}
}  // namespace internal

}  // namespace towline

#define TOWLINE_TRY_NAMED(name, ...)            \
  __extension__({                               \
    auto name = (__VA_ARGS__);                  \
    if (!name.has_value()) [[unlikely]]         \
      return std::move(name).error();           \
    ::towline::internal::take(std::move(name)); \
  })
#define TOWLINE_TRY_EXPAND(counter, ...) TOWLINE_TRY_NAMED(towline_try_##counter, __VA_ARGS__)
#define TOWLINE_TRY_COUNTED(counter, ...) TOWLINE_TRY_EXPAND(counter, __VA_ARGS__)
/// The value of a Result, or a return of its error from the calling function.
#define TOWLINE_TRY(...) TOWLINE_TRY_COUNTED(__COUNTER__, __VA_ARGS__)
