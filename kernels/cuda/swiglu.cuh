// SwiGLU's arithmetic, for every kernel that has it.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/mma.cuh"

namespace nightsweep::cuda {

// silu(gate) * up, with 2^x and 1/x of the special function unit. The rounding of the exponent
// makes an error of |gate| 2^-24 where the gate is negative: what follows rounds to half. Below -87
// it is zero; NaN stays NaN.
__device__ __forceinline__ float gated(float gate, float up) {
  constexpr float kLog2E = 1.44269504F;
  const float power = exp2_fast(gate * -kLog2E);
  float sigmoid = 0.0F;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(1.0F + power));
  return gate * sigmoid * up;
}

}  // namespace nightsweep::cuda
