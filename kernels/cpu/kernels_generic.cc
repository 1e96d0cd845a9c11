// The kernels for any processor.
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/simd_generic.h"

namespace nightsweep::cpu {

const KernelTable* generic_kernels() {
  static constexpr KernelTable kTable = {
      .name = "generic",
      .option_name = "generic",
      .panel_rounded = panel_rounded<Generic>,
      .panel_float = panel_float<Generic>,
      .round_tile = round_tile<Generic>,
      .float_tile = float_tile<Generic>,
      .rms_norm = rms_norm<Generic>,
      .swiglu = swiglu<Generic>,
      .rope = rope<Generic>,
      .store_kv = store_kv<Generic>,
      .attention = attention<Generic>,
  };
  return &kTable;
}

}  // namespace nightsweep::cpu
