// Tensor types: block layouts, sizes, and the reference decoder that every kernel is held against.
//
// Layouts are GGML's, little-endian; facts from the GGUF specification and llama.cpp's
// ggml-common.h. A row of a matrix is a whole number of blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nightsweep {

// Values are GGML's type numbers, as they stand in a file.
enum class QuantType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

struct QuantTraits {
  const char* name;  // "Q4_K"
  uint32_t ggml_type;
  uint32_t block_elems;  // elements a block
  uint32_t block_bytes;  // bytes a block
  bool can_compute;      // false: GGML knows the type, we only know its size
};

// Null for a number that GGML does not know or has removed.
const QuantTraits* find_quant_traits(uint32_t ggml_type);
const QuantTraits& quant_traits(QuantType type);

// REQUIRES: n is a multiple of the type's block_elems.
size_t quant_bytes(QuantType type, size_t n_elems);

// src: n_elems values of `type` as GGML stores them; dst: (n_elems). Bit-exact: every value is
// representable in float32. REQUIRES: n_elems is a multiple of block_elems.
void dequantize(QuantType type, const std::byte* src, float* dst, size_t n_elems);

// IEEE half and bfloat16, exact in both directions where representable; to half rounds to nearest
// even.
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);

}  // namespace nightsweep
