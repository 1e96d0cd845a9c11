// The kernels for AVX2. Keep the standard library's containers and algorithms out: the linker would
// share their inline functions, compiled for this instruction set, with the rest of the program.
#include "kernels/cpu/kernel_table.h"

#if defined(__x86_64__)
  #include "kernels/cpu/attention_kernels.h"
  #include "kernels/cpu/linear_kernels.h"
  #include "kernels/cpu/row_kernels.h"
  #include "kernels/cpu/simd_avx2.h"

namespace nightsweep::cpu {

const KernelTable* avx2_kernels() {
  static constexpr KernelTable kTable = {
      .name = "AVX2",
      .option_name = "avx2",
      .panel_rounded = panel_rounded<Avx2>,
      .panel_float = panel_float<Avx2>,
      .round_tile = round_tile<Avx2>,
      .float_tile = float_tile<Avx2>,
      .rms_norm = rms_norm<Avx2>,
      .swiglu = swiglu<Avx2>,
      .rope = rope<Avx2>,
      .store_kv = store_kv<Avx2>,
      .attention = attention<Avx2>,
  };
  return &kTable;
}

}  // namespace nightsweep::cpu

#else

namespace nightsweep::cpu {

const KernelTable* avx2_kernels() {
  return nullptr;
}

}  // namespace nightsweep::cpu

#endif
