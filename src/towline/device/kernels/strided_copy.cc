#include "towline/device/kernels/strided_copy.h"

#include <array>
#include <cstring>

#include "towline/device/kernels/cpu.h"
#include "towline/device/kernels/strided_paths.h"

namespace towline::device {

std::optional<Bytes> strided_bytes(Bytes bytes, Grid grid) {
  const auto runs = checked_multiply(grid.outer, grid.inner);
  if (!runs) return std::nullopt;
  const auto total = checked_multiply(*runs, bytes.count());
  return total ? std::optional(Bytes(*total)) : std::nullopt;
}

std::optional<Bytes> strided_extent(Bytes bytes, Grid grid, Strides stride) {
  if (grid.outer == 0 || grid.inner == 0 || bytes == Bytes(0)) return Bytes(0);
  const auto outer = checked_multiply(grid.outer - 1, stride.outer);
  const auto inner = checked_multiply(grid.inner - 1, stride.inner);
  if (!outer || !inner) return std::nullopt;
  const auto last = checked_add(*outer, *inner);
  const auto end = last ? checked_add(*last, bytes.count()) : std::nullopt;
  return end ? std::optional(Bytes(*end)) : std::nullopt;
}

StridedRuns merge_runs(StridedRuns runs) {
  const auto touch = [&runs](uint64_t Strides::*axis) {
    return runs.to_stride.*axis == runs.bytes.count() && runs.from_stride.*axis == runs.bytes.count();
  };
  if (runs.grid.inner == 1 || touch(&Strides::inner)) {
    runs.bytes = runs.bytes * runs.grid.inner;
    // The outer axis takes the place of the inner one, which has gone.
    runs.grid = Grid{1, runs.grid.outer};
    runs.to_stride.inner = runs.to_stride.outer;
    runs.from_stride.inner = runs.from_stride.outer;
    if (runs.grid.inner == 1 || touch(&Strides::inner)) {
      runs.bytes = runs.bytes * runs.grid.inner;
      runs.grid.inner = 1;
    }
  }
  return runs;
}

namespace {

/// A run whose size the compiler knows becomes a load and a store.
template <size_t kBytes>
struct FixedRun {
  void operator()(std::byte* to, const std::byte* from) const { std::memcpy(to, from, kBytes); }
};
struct AnyRun {
  size_t bytes;
  void operator()(std::byte* to, const std::byte* from) const { std::memcpy(to, from, bytes); }
};

template <typename Run>
void copy_grid(std::byte* to, const std::byte* from, const StridedRuns& runs, Run run) {
  for (uint64_t i = 0; i < runs.grid.outer; ++i) {
    std::byte* to_row = to + i * runs.to_stride.outer;
    const std::byte* from_row = from + i * runs.from_stride.outer;
    for (uint64_t j = 0; j < runs.grid.inner; ++j)
      run(to_row + j * runs.to_stride.inner, from_row + j * runs.from_stride.inner);
  }
}

}  // namespace

void copy_runs_portably(std::byte* to, const std::byte* from, const StridedRuns& runs) {
  switch (runs.bytes.count()) {
    case 1:
      return copy_grid(to, from, runs, FixedRun<1>{});
    case 2:
      return copy_grid(to, from, runs, FixedRun<2>{});
    case 4:
      return copy_grid(to, from, runs, FixedRun<4>{});
    case 8:
      return copy_grid(to, from, runs, FixedRun<8>{});
    case 16:
      return copy_grid(to, from, runs, FixedRun<16>{});
    default:
      return copy_grid(to, from, runs, AnyRun{runs.bytes.size()});
  }
}

std::span<const StridedPath> strided_paths() {
  static constexpr std::array kPaths = {
#if defined(__x86_64__)
    StridedPath{"avx512", &copy_runs_avx512},
    StridedPath{"avx2", &copy_runs_avx2},
#endif
    StridedPath{"portable", &copy_runs_portably}
  };
  return paths_of_this_cpu(std::span<const StridedPath>(kPaths));
}

void strided_copy(std::byte* to, const std::byte* from, const StridedRuns& asked) {
  if (asked.bytes == Bytes(0) || asked.grid.outer == 0 || asked.grid.inner == 0) return;
  strided_paths().front().copy(to, from, merge_runs(asked));
}

}  // namespace towline::device
