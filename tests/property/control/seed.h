#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "towline/base/rng.h"

namespace towline::control {

/// TOWLINE_SEED where it is set, else the given one: runs repeat unless asked to differ.
inline uint64_t test_seed(uint64_t fallback) {
  const char* text = std::getenv("TOWLINE_SEED");
  return text == nullptr ? fallback : std::stoull(text);
}

}  // namespace towline::control
