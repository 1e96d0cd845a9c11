// Weights from the file's layout into panels (linear_layout.h), and values back, bit for bit.
#include <cuda_fp16.h>

#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda/linear_values.cuh"

namespace nightsweep::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// Largest |scale| and |minimum| of a block, by which its values can grow; of a value for floats.
template <QuantType kType>
__device__ void block_bounds(const uint8_t* block, float& scale, float& minimum) {
  minimum = 0.0F;
  if constexpr (kType == QuantType::f32) {
    scale = fabsf(__uint_as_float(read16(block) | read16(block + 2) << 16));
  } else if constexpr (kType == QuantType::bf16) {
    scale = fabsf(__uint_as_float(read16(block) << 16));
  } else if constexpr (kType == QuantType::f16) {
    scale = 0.0F;
  } else if constexpr (kType == QuantType::q4_k || kType == QuantType::q5_k) {
    scale = 63.0F * fabsf(read_half(block));
    minimum = 63.0F * fabsf(read_half(block + 2));
  } else if constexpr (kType == QuantType::q6_k) {
    scale = 128.0F * fabsf(read_half(block + 208));
  } else {
    scale = fabsf(read_half(block));
    if constexpr (kType == QuantType::q4_1 || kType == QuantType::q5_1) {
      minimum = fabsf(read_half(block + 2));
    }
  }
}

// The row's power of two: scales stay below 2^-8, minima below what half holds after the shift, the
// values of floats below 2^15.
template <QuantType kType>
__device__ int row_exponent(uint32_t scale_bits, uint32_t minimum_bits) {
  if (scale_bits >= 0x7F800000U || minimum_bits >= 0x7F800000U) return 0;
  const bool is_float = kType == QuantType::f32 || kType == QuantType::bf16;
  int e = 126;
  // A product of two halves may round up: hence a little more than the bound.
  const float scale = __uint_as_float(scale_bits) * (is_float ? 1.0F : 1.0005F);
  if (scale > 0.0F) e = min(e, (is_float ? 14 : -9) - (int(__float_as_uint(scale) >> 23) - 127));
  const bool is_super = kType == QuantType::q4_k || kType == QuantType::q5_k;
  constexpr int kMinimumTop = 14 - kMinimumShift;
  if (minimum_bits != 0) {
    e = min(e, kMinimumTop + (is_super ? 5 : 0) - (int(minimum_bits >> 23) - 127));
  }
  if (scale_bits == 0 && minimum_bits == 0) e = 0;
  return e;
}

__device__ uint16_t scaled_half(float value, int exponent) {
  return __half_as_ushort(__float2half_rn(ldexpf(value, exponent)));
}

__device__ uint32_t pair_of(uint16_t low, uint16_t high) {
  return low | uint32_t{high} << 16;
}

// Writes what one lane holds of a chunk; `rows` is the panel's first row in the file.
template <QuantType kType>
struct ChunkWriter {
  const uint8_t* rows;
  size_t row_bytes;
  uint32_t n_rows;  // of this panel, 1 to 16
  uint32_t n_cols;
  uint32_t lane;

  __device__ uint32_t quant(uint32_t row, uint32_t col) const {
    if (row >= n_rows || col >= n_cols) return zero_quant<kType>();
    return file_quant<kType>(rows + row * row_bytes, col);
  }
  __device__ uint32_t row_of(uint32_t pair) const { return lane / 4 + 8 * (pair % 2); }
  __device__ uint32_t col_of(uint32_t chunk, uint32_t step, uint32_t pair) const {
    return kChunk * chunk + 16 * step + 8 * (pair / 2) + 2 * (lane % 4);
  }

  __device__ void write(uint8_t* at, uint32_t chunk) const {
    constexpr PackedLayout kLayout = packed_layout(kType);
    if constexpr (kType == QuantType::f32) {
      for (uint32_t s = 0; s < 4; ++s) {
        for (uint32_t half = 0; half < 2; ++half) {
          uint4 v;
          v.x = quant(row_of(0), col_of(chunk, s, 2 * half));
          v.y = quant(row_of(0), col_of(chunk, s, 2 * half) + 1);
          v.z = quant(row_of(1), col_of(chunk, s, 2 * half));
          v.w = quant(row_of(1), col_of(chunk, s, 2 * half) + 1);
          *reinterpret_cast<uint4*>(at + 1024 * s + 512 * half + 16 * lane) = v;
        }
      }
    } else if constexpr (kLayout.quant_bytes == 2048) {
      for (uint32_t s = 0; s < 4; ++s) {
        uint32_t w[4];
        for (uint32_t p = 0; p < 4; ++p) {
          const uint32_t col = col_of(chunk, s, p);
          w[p] = quant(row_of(p), col) | quant(row_of(p), col + 1) << 16;
        }
        *reinterpret_cast<uint4*>(at + 512 * s + 16 * lane) = make_uint4(w[0], w[1], w[2], w[3]);
      }
    } else if constexpr (kType == QuantType::q8_0) {
      for (uint32_t i = 0; i < 2; ++i) {
        uint32_t w[4] = {};
        for (uint32_t s = 0; s < 2; ++s) {
          for (uint32_t p = 0; p < 4; ++p) {
            const uint32_t col = col_of(chunk, 2 * i + s, p);
            w[2 * s + p / 2] |= (quant(row_of(p), col) | quant(row_of(p), col + 1) << 8)
                                << (16 * (p % 2));
          }
        }
        *reinterpret_cast<uint4*>(at + 512 * i + 16 * lane) = make_uint4(w[0], w[1], w[2], w[3]);
      }
    } else {
      uint32_t w[4] = {};
      uint32_t high[2] = {};
      for (uint32_t s = 0; s < 4; ++s) {
        for (uint32_t p = 0; p < 4; ++p) {
          const uint32_t col = col_of(chunk, s, p);
          const uint32_t first = quant(row_of(p), col);
          const uint32_t second = quant(row_of(p), col + 1);
          w[s] |= (first & 15) << (4 * p) | (second & 15) << (16 + 4 * p);
          if constexpr (kLayout.high_bytes == 128) {
            const uint32_t bit = (4 * (p + 1) + s) % 16;
            high[0] |= (first >> 4) << bit | (second >> 4) << (16 + bit);
          }
          if constexpr (kLayout.high_bytes == 256) {
            const uint32_t bit = (4 * (p + 1) + 2 * (s % 2)) % 16;
            high[s / 2] |= (first >> 4) << bit | (second >> 4) << (16 + bit);
          }
        }
      }
      *reinterpret_cast<uint4*>(at + 16 * lane) = make_uint4(w[0], w[1], w[2], w[3]);
      if constexpr (kLayout.high_bytes == 128) {
        *reinterpret_cast<uint32_t*>(at + 512 + 4 * lane) = high[0];
      }
      if constexpr (kLayout.high_bytes == 256) {
        *reinterpret_cast<uint2*>(at + 512 + 8 * lane) = make_uint2(high[0], high[1]);
      }
    }
  }

  // Scales of a chunk with blocks of 32: one row a lane, lanes 0 to 15.
  __device__ void write_chunk_scales(uint8_t* at, uint32_t chunk, const int* exponents) const {
    if (lane >= 16) return;
    constexpr bool kHasMinimum = kType == QuantType::q4_1 || kType == QuantType::q5_1;
    constexpr uint32_t kBlockBytes = file_block_bytes<kType>();
    const uint32_t shift = raw_bits_shift<kType>(lane);
    uint16_t d[2] = {};
    uint16_t m[2] = {};
    for (uint32_t i = 0; i < 2; ++i) {
      if (lane >= n_rows || kChunk * chunk + 32 * i >= n_cols) continue;
      const uint8_t* const block = rows + lane * row_bytes + (2 * chunk + i) * kBlockBytes;
      d[i] = scaled_half(read_half(block), exponents[lane] + int(shift));
      if constexpr (kHasMinimum)
        m[i] = scaled_half(read_half(block + 2), exponents[lane] + kMinimumShift);
    }
    const uint32_t g = lane % 8;
    const uint32_t upper = lane / 8;
    if constexpr (kHasMinimum) {
      *reinterpret_cast<uint2*>(at + 16 * g + 8 * upper) =
          make_uint2(pair_of(d[0], d[1]), pair_of(m[0], m[1]));
    } else {
      *reinterpret_cast<uint32_t*>(at + 8 * g + 4 * upper) = pair_of(d[0], d[1]);
    }
  }

  // Scales of a block of 256: one row a lane, lanes 0 to 15.
  __device__ void write_block_scales(uint8_t* at, uint32_t block, const int* exponents) const {
    if (lane >= 16) return;
    constexpr uint32_t kBlockBytes = file_block_bytes<kType>();
    const bool there = lane < n_rows;
    const uint8_t* const from = rows + lane * row_bytes + block * kBlockBytes;
    const int d_exponent = exponents[lane] + int(raw_bits_shift<kType>(lane));
    if constexpr (kType == QuantType::q6_k) {
      uint32_t w[4];
      for (uint32_t i = 0; i < 4; ++i) {
        w[i] = 0x80808080U;
        if (there) w[i] ^= read16(from + 192 + 4 * i) | read16(from + 194 + 4 * i) << 16;
      }
      *reinterpret_cast<uint4*>(at + 16 * lane) = make_uint4(w[0], w[1], w[2], w[3]);
      reinterpret_cast<uint16_t*>(at + 256)[2 * (lane % 8) + lane / 8] =
          there ? scaled_half(read_half(from + 208), d_exponent) : uint16_t{0};
    } else {
      uint32_t fields[8] = {};  // scale in bits 0-5, minimum in bits 16-21
      uint32_t d = 0;
      if (there) {
        for (uint32_t j = 0; j < 8; ++j) {
          const ScaleAndMin sm = file_scale_and_min(from + 4, j);
          fields[j] = sm.scale | sm.min << 16;
        }
        d = pair_of(
            scaled_half(read_half(from), d_exponent),
            scaled_half(-read_half(from + 2), exponents[lane] + kMinimumShift));
      }
      uint32_t w[3];
      for (uint32_t i = 0; i < 3; ++i)
        w[i] = fields[2 * i] | fields[2 * i + 1] << 6;
      w[0] |= (fields[6] & 0x000F000FU) << 12;
      w[1] |= (fields[7] & 0x000F000FU) << 12;
      w[2] |= (fields[6] >> 4 & 0x00030003U) << 12 | (fields[7] >> 4 & 0x00030003U) << 14;
      *reinterpret_cast<uint4*>(at + 16 * lane) = make_uint4(d, w[0], w[1], w[2]);
    }
  }
};

// A block of threads packs one panel.
template <QuantType kType>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const uint8_t* file, uint32_t n_rows, uint32_t n_cols, uint8_t* packed) {
  constexpr PackedLayout kLayout = packed_layout(kType);
  constexpr uint32_t kBlockBytes = file_block_bytes<kType>();
  constexpr uint32_t kBlockElems = file_block_elems<kType>();
  const uint32_t n_chunks = chunk_count(n_cols);
  const size_t row_bytes = size_t{n_cols / kBlockElems} * kBlockBytes;
  const uint32_t first_row = blockIdx.x * kPanel;
  const uint32_t panel_rows = min(kPanel, n_rows - first_row);
  const uint8_t* const rows = file + first_row * row_bytes;
  uint8_t* const panel = packed + blockIdx.x * kLayout.panel_bytes(n_chunks);

  __shared__ uint32_t scale_bits[kPanel];
  __shared__ uint32_t minimum_bits[kPanel];
  __shared__ int exponents[kPanel];
  if (threadIdx.x < kPanel) {
    scale_bits[threadIdx.x] = 0;
    minimum_bits[threadIdx.x] = 0;
  }
  __syncthreads();
  constexpr uint32_t kThreadsPerRow = kThreads / kPanel;
  const uint32_t row = threadIdx.x / kThreadsPerRow;
  if (kType != QuantType::f16 && row < panel_rows) {
    uint32_t largest_scale = 0;
    uint32_t largest_minimum = 0;
    for (uint32_t b = threadIdx.x % kThreadsPerRow; b < n_cols / kBlockElems; b += kThreadsPerRow) {
      float scale;
      float minimum;
      block_bounds<kType>(rows + row * row_bytes + b * kBlockBytes, scale, minimum);
      largest_scale = max(largest_scale, __float_as_uint(scale));
      largest_minimum = max(largest_minimum, __float_as_uint(minimum));
    }
    atomicMax(&scale_bits[row], largest_scale);
    atomicMax(&minimum_bits[row], largest_minimum);
  }
  __syncthreads();
  if (threadIdx.x < kPanel) {
    const int e = row_exponent<kType>(scale_bits[threadIdx.x], minimum_bits[threadIdx.x]);
    exponents[threadIdx.x] = e;
    reinterpret_cast<int16_t*>(panel)[threadIdx.x] = static_cast<int16_t>(e);
  }
  __syncthreads();

  const uint32_t lane = threadIdx.x % 32;
  const ChunkWriter<kType> writer{rows, row_bytes, panel_rows, n_cols, lane};
  uint8_t* const blocks = panel + kPanelHeaderBytes;
  for (uint32_t chunk = threadIdx.x / 32; chunk < n_chunks; chunk += kThreads / 32) {
    uint8_t* const at = blocks + kLayout.chunk_offset(chunk);
    writer.write(at, chunk);
    if constexpr (kLayout.block_chunks == 4) {
      if (chunk % 4 == 0) {
        writer.write_block_scales(at - kLayout.scale_bytes, chunk / 4, exponents);
      }
    } else if constexpr (kLayout.scale_bytes != 0) {
      writer.write_chunk_scales(at + kLayout.quant_bytes + kLayout.high_bytes, chunk, exponents);
    }
  }
}

template <QuantType kType>
__global__ void embed_kernel(
    const uint8_t* table,
    bool is_packed,
    uint32_t n_cols,
    const uint32_t* ids,
    float* out) {
  const uint32_t id = ids[blockIdx.x];
  float* const row = out + size_t{blockIdx.x} * n_cols;
  const size_t panel_bytes = packed_layout(kType).panel_bytes(chunk_count(n_cols));
  const size_t row_bytes = size_t{n_cols / file_block_elems<kType>()} * file_block_bytes<kType>();
  for (uint32_t col = threadIdx.x + blockIdx.y * blockDim.x; col < n_cols;
       col += blockDim.x * gridDim.y) {
    row[col] = is_packed ? packed_value<kType>(table + id / kPanel * panel_bytes, id % kPanel, col)
                         : file_value<kType>(table + id * row_bytes, col);
  }
}

}  // namespace

template <typename Body>
static void for_type(QuantType type, const Body& body) {
  switch (type) {
#define NIGHTSWEEP_TYPE(name) \
  case QuantType::name:       \
    return body.template operator()<QuantType::name>();
    NIGHTSWEEP_TYPE(f32)
    NIGHTSWEEP_TYPE(f16)
    NIGHTSWEEP_TYPE(bf16)
    NIGHTSWEEP_TYPE(q4_0)
    NIGHTSWEEP_TYPE(q4_1)
    NIGHTSWEEP_TYPE(q5_0)
    NIGHTSWEEP_TYPE(q5_1)
    NIGHTSWEEP_TYPE(q8_0)
    NIGHTSWEEP_TYPE(q4_k)
    NIGHTSWEEP_TYPE(q5_k)
    NIGHTSWEEP_TYPE(q6_k)
#undef NIGHTSWEEP_TYPE
  }
}

void launch_pack(
    QuantType type,
    const uint8_t* file,
    uint32_t n_rows,
    uint32_t n_cols,
    uint8_t* packed,
    cudaStream_t stream) {
  const uint32_t n_panels = (n_rows + kPanel - 1) / kPanel;
  for_type(type, [&]<QuantType kType>() {
    pack_kernel<kType><<<n_panels, kThreads, 0, stream>>>(file, n_rows, n_cols, packed);
  });
}

void launch_embed(
    QuantType type,
    const uint8_t* table,
    bool is_packed,
    uint32_t n_cols,
    const uint32_t* ids,
    uint32_t count,
    float* out,
    cudaStream_t stream) {
  const dim3 grid(count, (n_cols + 1023) / 1024);
  for_type(type, [&]<QuantType kType>() {
    embed_kernel<kType><<<grid, kThreads, 0, stream>>>(table, is_packed, n_cols, ids, out);
  });
}

}  // namespace nightsweep::cuda
