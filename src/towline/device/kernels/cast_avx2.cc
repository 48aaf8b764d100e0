#include "towline/device/internal/lanes_avx2.h"
#include "towline/device/kernels/cast_paths.h"

#if defined(__x86_64__)

namespace towline::device {
namespace {

template <tensor::Dtype kTo, tensor::Dtype kFrom>
struct Avx2Cast {
  static void run(std::byte* to, const std::byte* from, uint64_t elements, Stores stores) {
    const uint64_t halves = elements / kHalfElements;
    if (stores == Stores::kStreamed) return cast_half_lines<Stores::kStreamed>(to, from, halves);
    cast_half_lines<Stores::kCached>(to, from, halves);
  }

 private:
  static constexpr uint64_t kHalfLine = kCacheLine / 2;
  static constexpr uint64_t kHalfElements = kHalfLine / cast_width(kTo);

  template <Stores kStores>
  static TOWLINE_AVX2 void cast_half_lines(std::byte* to, const std::byte* from, uint64_t halves) {
    for (uint64_t i = 0; i < halves; ++i) {
      const std::byte* at = from + i * kHalfElements * cast_width(kFrom);
      Avx2Lanes::store_half_line<kStores>(to + i * kHalfLine, Avx2Lanes::load_half_line<kTo, kFrom>(at));
    }
    if constexpr (kStores == Stores::kStreamed) _mm_sfence();
  }
};

}  // namespace

constexpr CastTable kAvx2Casts = make_cast_table<Avx2Cast>();

}  // namespace towline::device
#endif
