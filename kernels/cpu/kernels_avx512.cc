// The kernels for AVX-512 VNNI. Keep the standard library's containers and algorithms out: the
// linker would share their inline functions, compiled for this instruction set, with the rest of
// the program.
#include "kernels/cpu/kernel_table.h"

#if defined(__x86_64__)
  #include "kernels/cpu/attention_kernels.h"
  #include "kernels/cpu/linear_kernels.h"
  #include "kernels/cpu/row_kernels.h"
  #include "kernels/cpu/simd_avx512.h"

namespace nightsweep::cpu {

const KernelTable* avx512_kernels() {
  static constexpr KernelTable kTable = {
      .name = "AVX-512 VNNI",
      .option_name = "avx512",
      .panel_rounded = panel_rounded<Avx512>,
      .panel_float = panel_float<Avx512>,
      .round_tile = round_tile<Avx512>,
      .float_tile = float_tile<Avx512>,
      .rms_norm = rms_norm<Avx512>,
      .swiglu = swiglu<Avx512>,
      .rope = rope<Avx512>,
      .store_kv = store_kv<Avx512>,
      .attention = attention<Avx512>,
  };
  return &kTable;
}

}  // namespace nightsweep::cpu

#else

namespace nightsweep::cpu {

const KernelTable* avx512_kernels() {
  return nullptr;
}

}  // namespace nightsweep::cpu

#endif
