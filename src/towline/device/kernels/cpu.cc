#include "towline/device/kernels/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace towline::device {

#if defined(__x86_64__)
namespace {

/// Clang 14's builtin has no word for F16C; it does say whether the system saves the registers.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

bool has_avx2() {
  static const bool present = __builtin_cpu_supports("avx2") && has_f16c();
  return present;
}

bool has_avx512() {
  static const bool present = has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return present;
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

}  // namespace towline::device
