#include "towline/base/rng.h"

#include <random>

namespace towline {

uint64_t entropy() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace towline
