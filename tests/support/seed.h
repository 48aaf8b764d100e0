#pragma once

#include <cstdint>
#include <cstdlib>

namespace towline {

/// The seed of a randomised test: TOWLINE_SEED, so that a failure can be repeated, or the given one. The test prints it
/// through SCOPED_TRACE.
inline uint64_t test_seed(uint64_t fallback) {
  const char* text = std::getenv("TOWLINE_SEED");
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 0);
}

}  // namespace towline
