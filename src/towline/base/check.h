#pragma once

#include <fmt/core.h>

#include <string>

namespace towline::internal {

/// Prints the failed condition with its place and values to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& values);

inline std::string check_values() { return {}; }
template <typename First, typename... Rest>
std::string check_values(const First& first, const Rest&... rest) {
  std::string text = fmt::format("{}", first);
  ((text += fmt::format(", {}", rest)), ...);
  return text;
}

}  // namespace towline::internal

/// A broken invariant is a bug in this program: says where, with the values, and aborts. On in release builds. Input
/// from outside is never checked this way.
#define TOWLINE_CHECK(condition, ...)                                                    \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::towline::internal::check_failed(__FILE__, __LINE__, #condition,                  \
                                        ::towline::internal::check_values(__VA_ARGS__)); \
  } while (false)

/// The same for inner loops: off when NDEBUG is defined.
#ifdef NDEBUG
#define TOWLINE_DCHECK(condition, ...) static_cast<void>(sizeof((condition) ? 1 : 0))
#else
#define TOWLINE_DCHECK(condition, ...) TOWLINE_CHECK(condition, __VA_ARGS__)
#endif
