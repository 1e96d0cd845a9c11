#if defined(__x86_64__)
  #include <cpuid.h>
#endif

#include <string>

#include "base/error.h"
#include "kernels/cpu/kernel_table.h"

namespace nightsweep::cpu {
namespace {

#if defined(__x86_64__)
// clang's __builtin_cpu_supports does not know f16c before version 16.
bool cpu_has_f16c() {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

bool cpu_has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         cpu_has_f16c();
#else
  return false;
#endif
}

bool cpu_has_avx512() {
#if defined(__x86_64__)
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

}  // namespace

const KernelTable& choose_kernels(std::string_view instruction_set) {
  const KernelTable* const avx512 = cpu_has_avx512() ? avx512_kernels() : nullptr;
  const KernelTable* const avx2 = cpu_has_avx2() ? avx2_kernels() : nullptr;
  if (instruction_set.empty()) {
    if (avx512 != nullptr) return *avx512;
    if (avx2 != nullptr) return *avx2;
    return *generic_kernels();
  }
  std::string runnable;
  for (const KernelTable* table : {generic_kernels(), avx2, avx512}) {
    if (table == nullptr) continue;
    if (instruction_set == table->option_name) return *table;
    runnable += runnable.empty() ? "" : ", ";
    runnable += table->option_name;
  }
  fail(
      ErrorKind::device, "this CPU cannot run the instruction set \"{}\"; it runs: {}",
      instruction_set, runnable);
}

}  // namespace nightsweep::cpu
