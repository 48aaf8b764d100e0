#include "towline/device/kernels/runs_ahead.h"
#include "towline/device/kernels/strided_paths.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace towline::device {
namespace {

constexpr uint64_t kWidth = 64;

inline TOWLINE_AVX512 __m512i load(const std::byte* from) { return _mm512_loadu_si512(from); }

template <Stores kStores>
inline TOWLINE_AVX512 void store(std::byte* to, __m512i value) {
  if constexpr (kStores == Stores::kStreamed) {
    _mm512_stream_si512(vector_at<__m512i>(to), value);
  } else {
    _mm512_storeu_si512(to, value);
  }
}

/// `bytes` is at least kWidth. The last vector reaches back over what is already there; a streamed run has none.
template <Stores kStores>
inline TOWLINE_AVX512 void copy_run(std::byte* to, const std::byte* from, const std::byte* fetch, uint64_t bytes) {
  uint64_t at = 0;
  for (; at + kCacheLine <= bytes; at += kCacheLine) {
    __builtin_prefetch(fetch + at, 0, 2);
    for (uint64_t part = 0; part < kCacheLine; part += kWidth) store<kStores>(to + at + part, load(from + at + part));
  }
  for (; at + kWidth <= bytes; at += kWidth) store<Stores::kCached>(to + at, load(from + at));
  if (at < bytes) store<Stores::kCached>(to + bytes - kWidth, load(from + bytes - kWidth));
}

template <Stores kStores>
TOWLINE_AVX512 void copy_grid(std::byte* to, const std::byte* from, const StridedRuns& runs) {
  RunFetch fetch(from, runs);
  for (uint64_t i = 0; i < runs.grid.outer; ++i)
    for (uint64_t j = 0; j < runs.grid.inner; ++j) {
      const std::byte* from_run = from + i * runs.from_stride.outer + j * runs.from_stride.inner;
      std::byte* to_run = to + i * runs.to_stride.outer + j * runs.to_stride.inner;
      copy_run<kStores>(to_run, from_run, fetch.begin_run(from_run), runs.bytes.count());
    }
  if constexpr (kStores == Stores::kStreamed) _mm_sfence();
}

}  // namespace

void copy_runs_avx512(std::byte* to, const std::byte* from, const StridedRuns& runs) {
  if (runs.bytes.count() < kWidth) return copy_runs_portably(to, from, runs);
  if (stores_of_runs(to, runs) == Stores::kStreamed) return copy_grid<Stores::kStreamed>(to, from, runs);
  copy_grid<Stores::kCached>(to, from, runs);
}

}  // namespace towline::device
#endif
