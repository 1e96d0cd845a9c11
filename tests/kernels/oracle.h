// References in double, written without the kernels' tricks, and the data they are tried on.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/quant.h"

namespace nightsweep {

inline const std::vector<QuantType>& all_types() {
  static const std::vector<QuantType> types = {QuantType::f32,  QuantType::f16,  QuantType::bf16,
                                               QuantType::q4_0, QuantType::q4_1, QuantType::q5_0,
                                               QuantType::q5_1, QuantType::q8_0, QuantType::q4_k,
                                               QuantType::q5_k, QuantType::q6_k};
  return types;
}

inline bool is_float_type(QuantType type) {
  return quant_traits(type).block_elems == 1;
}

// The instruction sets that this CPU runs.
inline const std::vector<std::string>& runnable_sets() {
  static const std::vector<std::string> sets = [] {
    std::vector<std::string> found = {"generic"};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back("avx2");
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl")) {
      found.push_back("avx512");
    }
#endif
    return found;
  }();
  return sets;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  float normal() { return std::normal_distribution<float>(0.0F, 1.0F)(engine_); }
  uint32_t bits() { return engine_(); }
  std::vector<float> normals(size_t n) {
    std::vector<float> values(n);
    for (float& value : values)
      value = normal();
    return values;
  }

 private:
  std::mt19937 engine_;
};

inline void put_half(std::byte* at, float value) {
  const uint16_t bits = float_to_half(value);
  std::memcpy(at, &bits, sizeof bits);
}

// Blocks of random bits with sane scales: every field takes all its values.
inline std::vector<std::byte> random_blocks(QuantType type, size_t n_elems, Random& random) {
  std::vector<std::byte> bytes(quant_bytes(type, n_elems));
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random.bits());
  const uint32_t block_bytes = quant_traits(type).block_bytes;
  for (size_t at = 0; at < bytes.size(); at += block_bytes) {
    std::byte* const block = bytes.data() + at;
    switch (type) {
      case QuantType::f32: {
        const float value = random.normal();
        std::memcpy(block, &value, sizeof value);
        break;
      }
      case QuantType::f16:
        put_half(block, random.normal());
        break;
      case QuantType::bf16: {
        const float value = random.normal();
        std::memcpy(block, reinterpret_cast<const std::byte*>(&value) + 2, 2);
        break;
      }
      case QuantType::q4_0:
      case QuantType::q5_0:
      case QuantType::q8_0:
        put_half(block, random.uniform(-0.1F, 0.1F));
        break;
      case QuantType::q4_1:
      case QuantType::q5_1:
        put_half(block, random.uniform(-0.1F, 0.1F));
        put_half(block + 2, random.uniform(-1.0F, 1.0F));
        break;
      case QuantType::q4_k:
      case QuantType::q5_k:
        put_half(block, random.uniform(-0.01F, 0.01F));
        put_half(block + 2, random.uniform(-0.1F, 0.1F));
        break;
      case QuantType::q6_k:
        put_half(block + 208, random.uniform(-0.001F, 0.001F));
        break;
    }
  }
  return bytes;
}

inline std::vector<float>
dequantized(QuantType type, const std::vector<std::byte>& bytes, size_t n_elems) {
  std::vector<float> values(n_elems);
  dequantize(type, bytes.data(), values.data(), n_elems);
  return values;
}

// The input as `fast` sees it: blocks of 32 rounded to 8 bits, with a float32 scale.
inline std::vector<double> rounded_input(const std::vector<float>& x) {
  std::vector<double> result(x.size());
  for (size_t first = 0; first < x.size(); first += 32) {
    float largest = 0.0F;
    for (size_t i = first; i < first + 32; ++i)
      largest = std::max(largest, std::fabs(x[i]));
    if (largest == 0.0F) continue;
    const float inverse = 127.0F / largest;
    const double scale = static_cast<double>(largest / 127.0F);
    for (size_t i = first; i < first + 32; ++i) {
      result[i] = scale * std::nearbyint(static_cast<double>(x[i] * inverse));
    }
  }
  return result;
}

// What a dot product may differ by: `terms` roundings of float32 on the sum of magnitudes.
inline double rounding_bound(double sum_of_magnitudes, size_t terms) {
  return static_cast<double>(terms) * 0x1p-24 * sum_of_magnitudes + 1e-30;
}

// Keeps the element that comes nearest to its tolerance, to be printed.
class WorstElement {
 public:
  void add(size_t row, size_t column, double expected, double found, double tolerance) {
    const double ratio = std::fabs(expected - found) / tolerance;
    if (ratio <= ratio_) return;  // also keeps a NaN out of the comparison below
    ratio_ = ratio;
    text_ = "row " + std::to_string(row) + ", column " + std::to_string(column) + ": expected " +
            std::to_string(expected) + ", found " + std::to_string(found) + ", tolerance " +
            std::to_string(tolerance) + ", ratio " + std::to_string(ratio);
  }
  void add_checked(size_t row, size_t column, double expected, double found, double tolerance) {
    if (std::isfinite(found)) {
      add(row, column, expected, found, tolerance);
    } else {
      ratio_ = HUGE_VAL;
      text_ = "row " + std::to_string(row) + ", column " + std::to_string(column) + ": not finite";
    }
  }
  double ratio() const { return ratio_; }
  const std::string& text() const { return text_; }

 private:
  double ratio_ = 0;
  std::string text_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::vector<float> rows_of(const std::vector<float>& x, size_t first, size_t n, size_t dim) {
  const auto from = x.begin() + static_cast<ptrdiff_t>(first * dim);
  return {from, from + static_cast<ptrdiff_t>(n * dim)};
}

}  // namespace nightsweep
