// Do warpgroup products give the bits of mma.sync here? Chains of both on numbers that exercise
// cancellation, subnormals and a wide range.
#include "kernels/cuda/linear_mma.cuh"
#include "kernels/cuda/linear_wide.cuh"

namespace nightsweep::cuda {
namespace {

constexpr uint32_t kTrials = 64;  // blocks
constexpr uint32_t kGroups = 4;   // of 8 rows: the narrowest product of the wide tiles

#ifdef NIGHTSWEEP_WARPGROUP
constexpr uint32_t kSteps = 64;

__device__ uint32_t mix(uint32_t value) {
  value = (value ^ value >> 16) * 0x7FEB352DU;
  value = (value ^ value >> 15) * 0x846CA68BU;
  return value ^ value >> 16;
}

// A half of random sign and mantissa; the range of exponents differs from trial to trial.
__device__ uint32_t random_half(uint32_t seed, uint32_t trial) {
  const uint32_t bits = mix(seed * 64 + trial);
  const uint32_t spread = 1 + trial % 24;
  const uint32_t exponent = (trial / 2 % 8) + (bits >> 16) % spread;  // 0 is subnormal
  return (bits & 0x83FFU) | min(exponent, 29U) << 10;
}

__device__ uint32_t random_pair(uint32_t seed, uint32_t trial) {
  return random_half(2 * seed, trial) | random_half(2 * seed + 1, trial) << 16;
}
#endif

__global__ void __launch_bounds__(128) compare_products(uint32_t* differences) {
#ifdef NIGHTSWEEP_WARPGROUP
  __shared__ __align__(1024) uint8_t input[kGroups * kInputChunkBytes];
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t g = lane / 4;
  const uint32_t t = lane % 4;
  float wide[4 * kGroups] = {};
  float narrow[kGroups][4] = {};
  for (uint32_t step = 0; step < kSteps; ++step) {
    const uint32_t seed = step * 4096;
    for (uint32_t i = threadIdx.x; i < 64 * kGroups; i += 128) {
      // Word i: of group i / 64, columns 2 (i % 4) and the next of piece i / 32 % 2, row i / 4 % 8.
      const uint32_t row = i / 4 % 8;
      const uint32_t at =
          i / 64 * kInputChunkBytes + 128 * row + 16 * (i / 32 % 2 ^ row) + 4 * (i % 4);
      *reinterpret_cast<uint32_t*>(input + at) = random_pair(seed + 2048 + i, blockIdx.x);
    }
    fence_shared_for_products();
    __syncthreads();
    uint32_t a[4];
    for (uint32_t i = 0; i < 4; ++i)
      a[i] = random_pair(seed + 4 * threadIdx.x + i, blockIdx.x);
    warpgroup_fence();
    multiply_warpgroup(
        wide, a, input_descriptor(static_cast<uint32_t>(__cvta_generic_to_shared(input))));
    warpgroup_commit();
    warpgroup_wait<0>();
    for (uint32_t n = 0; n < kGroups; ++n) {
      const uint8_t* const at = input + n * kInputChunkBytes + 128 * g + 4 * t;
      multiply(
          narrow[n], a, *reinterpret_cast<const uint32_t*>(at + 16 * g),
          *reinterpret_cast<const uint32_t*>(at + 16 * (g ^ 1)));
    }
    __syncthreads();
  }
  uint32_t count = 0;
  for (uint32_t i = 0; i < 4 * kGroups; ++i)
    count += __float_as_uint(wide[i]) != __float_as_uint(narrow[i / 4][i % 4]);
  if (count != 0) atomicAdd(differences, count);
#else
  atomicAdd(differences, 4 * kGroups);
#endif
}

}  // namespace

void launch_compare_products(uint32_t* differences, cudaStream_t stream) {
  compare_products<<<kTrials, 128, 0, stream>>>(differences);
}

}  // namespace nightsweep::cuda
