#include "towline/transport/ucx/stream_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace towline::transport::ucx {
namespace {

#ifdef __SSE2__
constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
/// Pages that are copied side by side, a line of each in turn: keeps as many memory banks and prefetchers busy.
constexpr size_t kStreams = 4;
constexpr size_t kStretch = kStreams * kPage;

void copy_line(std::byte* to, const std::byte* from) {
  __m128i part[4];
  for (size_t i = 0; i < 4; ++i) part[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
  for (size_t i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, part[i]);
}

void copy_stretch(std::byte* to, const std::byte* from) {
  for (size_t line = 0; line < kPage; line += kLine)
    for (size_t page = 0; page < kStretch; page += kPage) copy_line(to + page + line, from + page + line);
}
#endif

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
#ifdef __SSE2__
  // Streaming stores want whole lines; less than a few stretches is not worth its ends.
  if (bytes >= 16 * kStretch) {
    const size_t head = -reinterpret_cast<uintptr_t>(to) % kLine;
    std::memcpy(to, from, head);
    size_t at = head;
    for (; bytes - at >= kStretch; at += kStretch) copy_stretch(to + at, from + at);
    _mm_sfence();
    to += at;
    from += at;
    bytes -= at;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace towline::transport::ucx
