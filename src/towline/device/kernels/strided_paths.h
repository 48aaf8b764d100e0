#pragma once

#include <span>
#include <string_view>

#include "towline/device/kernels/strided_copy.h"

namespace towline::device {

/// One way to copy runs. All leave the same bytes; strided_copy() takes the first of strided_paths().
struct StridedPath {
  std::string_view name;
  /// `runs` are merged and none of their counts is 0.
  void (*copy)(std::byte* to, const std::byte* from, const StridedRuns& runs);
};

/// Those that this CPU has, the fastest first; the last one needs nothing of it and is the others' oracle.
std::span<const StridedPath> strided_paths();

void copy_runs_portably(std::byte* to, const std::byte* from, const StridedRuns& runs);
#if defined(__x86_64__)
void copy_runs_avx2(std::byte* to, const std::byte* from, const StridedRuns& runs);
void copy_runs_avx512(std::byte* to, const std::byte* from, const StridedRuns& runs);
#endif

}  // namespace towline::device
