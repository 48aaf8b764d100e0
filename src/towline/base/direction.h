#pragma once

#include <cstdint>

namespace towline {

/// Seen from local memory. A transport's get and a file's read are kRead; put and write are kWrite.
enum class Direction : uint8_t { kRead, kWrite };

}  // namespace towline
