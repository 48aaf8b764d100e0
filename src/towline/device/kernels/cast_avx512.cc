#include "towline/device/internal/lanes_avx512.h"
#include "towline/device/kernels/cast_paths.h"

#if defined(__x86_64__)

namespace towline::device {
namespace {

template <tensor::Dtype kTo, tensor::Dtype kFrom>
struct Avx512Cast {
  static void run(std::byte* to, const std::byte* from, uint64_t elements, Stores stores) {
    const uint64_t lines = elements / kLineElements;
    if (stores == Stores::kStreamed) return cast_lines<Stores::kStreamed>(to, from, lines);
    cast_lines<Stores::kCached>(to, from, lines);
  }

 private:
  static constexpr uint64_t kLineElements = kCacheLine / cast_width(kTo);

  template <Stores kStores>
  static TOWLINE_AVX512 void cast_lines(std::byte* to, const std::byte* from, uint64_t lines) {
    for (uint64_t i = 0; i < lines; ++i) {
      const std::byte* at = from + i * kLineElements * cast_width(kFrom);
      Avx512Lanes::store_line<kStores>(to + i * kCacheLine, Avx512Lanes::load_line<kTo, kFrom>(at));
    }
    if constexpr (kStores == Stores::kStreamed) _mm_sfence();
  }
};

}  // namespace

constexpr CastTable kAvx512Casts = make_cast_table<Avx512Cast>();

}  // namespace towline::device
#endif
