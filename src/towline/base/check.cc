#include "towline/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace towline::internal {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  fmt::print(stderr, "{}:{}: check failed: {}{}{}\n", file, line, condition, values.empty() ? "" : ": ", values);
  std::fflush(stderr);
  std::abort();
}

}  // namespace towline::internal
