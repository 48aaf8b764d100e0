#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "towline/base/bytes.h"

// Functions that need more than the baseline say so themselves, and are called only where has_avx2() or has_avx512()
// is true: the rest of the library runs everywhere.
#if defined(__x86_64__)
#define TOWLINE_AVX2 __attribute__((target("avx2,f16c")))
#define TOWLINE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#endif

namespace towline::device {

/// Whether this CPU and its system have all that TOWLINE_AVX2 (TOWLINE_AVX512) code uses; the second implies the first.
/// False off x86-64.
bool has_avx2();
bool has_avx512();

/// Of `paths`, the AVX-512 one, the AVX2 one and the portable one (off x86-64 that alone), those that run here.
template <typename Path>
std::span<const Path> paths_of_this_cpu(std::span<const Path> paths) {
  return paths.last(1 + (has_avx2() ? 1 : 0) + (has_avx512() ? 1 : 0));
}

inline constexpr size_t kCacheLine = 64;

/// How a kernel writes. Streamed stores go past the caches: the destination's lines are not read first, which saves a
/// third of the traffic, and what the caches held stays. They are whole, aligned lines.
enum class Stores : uint8_t { kCached, kStreamed };

/// Results from here on are streamed. 2 MiB: the second-level cache of the server cores of 2023; nobody who asked for
/// more finds it there afterwards.
inline constexpr Bytes kStreamBytes = MiB(2);

/// Whether `to` is where a line begins.
inline bool begins_line(const std::byte* to) { return reinterpret_cast<uintptr_t>(to) % kCacheLine == 0; }

/// `at` as intrinsics take it; they read and write at any alignment.
template <typename Vector>
const Vector* vector_at(const std::byte* at) {
  return static_cast<const Vector*>(static_cast<const void*>(at));
}
template <typename Vector>
Vector* vector_at(std::byte* at) {
  return static_cast<Vector*>(static_cast<void*>(at));
}

}  // namespace towline::device
