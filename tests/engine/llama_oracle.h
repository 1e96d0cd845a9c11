// The llama architecture in double precision, written from its formulas alone: one position after
// the other, no cache tricks, no kernels of the product.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/gguf.h"
#include "kernels/device.h"
#include "kernels/quant.h"

namespace nightsweep {

// Where the oracle rounds, to tell what an arithmetic costs; nowhere by default.
struct OracleRounding {
  int bits = 0;             // significant ones of the inputs of all products, weights too; 11: half
  KvType kv = KvType::f32;  // of the cache
  // K-quants: scale and minimum of a sub-block are rounded as well, before the weight is made.
  bool rounds_scales = false;
  // Another number: embeddings that differ by 2^-20, so that the same roundings fall otherwise.
  uint32_t draw = 0;
};

class LlamaOracle {
 public:
  explicit LlamaOracle(const GgufModel& model, const OracleRounding& rounding = {})
      : model_(model), rounding_(rounding) {
    auto number = [&](const char* key) {
      return model.require_unsigned(std::string("llama.") + key);
    };
    dim_ = number("embedding_length");
    n_layers_ = number("block_count");
    n_heads_ = number("attention.head_count");
    n_kv_heads_ = model.find_unsigned("llama.attention.head_count_kv").value_or(n_heads_);
    head_dim_ = model.find_unsigned("llama.attention.key_length").value_or(dim_ / n_heads_);
    base_ = model.find_number("llama.rope.freq_base").value_or(10000.0);
    epsilon_ = *model.find_number("llama.attention.layer_norm_rms_epsilon");
  }

  // (tokens.size(), n_vocab)
  std::vector<std::vector<double>> logits(const std::vector<uint32_t>& tokens) {
    std::vector<std::vector<double>> result;
    std::vector<std::vector<std::vector<double>>> keys(n_layers_);
    std::vector<std::vector<std::vector<double>>> values(n_layers_);
    for (size_t position = 0; position < tokens.size(); ++position) {
      std::vector<double> x = row("token_embd.weight", tokens[position]);
      if (rounding_.draw > 0) disturb(x);
      for (size_t l = 0; l < n_layers_; ++l) {
        std::string p = "blk." + std::to_string(l) + ".";
        std::vector<double> h = norm(x, p + "attn_norm.weight");
        size_t q_dim = n_heads_ * head_dim_;
        size_t kv_dim = n_kv_heads_ * head_dim_;
        std::vector<double> q;
        std::vector<double> k;
        std::vector<double> v;
        if (model_.find_tensor(p + "attn_qkv.weight") != nullptr) {
          std::vector<double> all = times(p + "attn_qkv", h);
          q.assign(all.begin(), all.begin() + q_dim);
          k.assign(all.begin() + q_dim, all.begin() + q_dim + kv_dim);
          v.assign(all.begin() + q_dim + kv_dim, all.end());
        } else {
          q = times(p + "attn_q", h);
          k = times(p + "attn_k", h);
          v = times(p + "attn_v", h);
        }
        turn(q, position);
        turn(k, position);
        round_inputs(q);
        keys[l].push_back(cached(k));
        values[l].push_back(cached(v));
        add(x, times(p + "attn_output", attend(q, keys[l], values[l])));
        h = norm(x, p + "ffn_norm.weight");
        std::vector<double> gate = times(p + "ffn_gate", h);
        std::vector<double> up = times(p + "ffn_up", h);
        for (size_t i = 0; i < gate.size(); ++i)
          gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        add(x, times(p + "ffn_down", gate));
      }
      std::vector<double> last = norm(x, "output_norm.weight");
      bool tied = model_.find_tensor("output.weight") == nullptr;
      result.push_back(times(tied ? "token_embd" : "output", last));
    }
    return result;
  }

 private:
  static constexpr int kHalfBits = 11;
  static double rounded(double value, int bits) {
    if (bits == 0 || value == 0) return value;
    int exponent = 0;
    const double mantissa = std::frexp(value, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
  }
  void round_inputs(std::vector<double>& x) const {
    for (double& value : x)
      value = rounded(value, rounding_.bits);
  }
  void disturb(std::vector<double>& x) {
    for (double& value : x) {
      noise_ = noise_ * 6364136223846793005ULL + rounding_.draw;
      value *= 1 + std::ldexp(static_cast<double>(noise_ >> 40), -44) - std::ldexp(1.0, -21);
    }
  }
  // Keys or values as the cache holds them and a product takes them.
  std::vector<double> cached(std::vector<double> x) const {
    for (size_t first = 0; rounding_.kv == KvType::q8_0 && first < x.size();) {
      const size_t end = std::min(first + 32, (first / head_dim_ + 1) * head_dim_);
      double largest = 0;
      for (size_t i = first; i < end; ++i)
        largest = std::max(largest, std::abs(x[i]));
      const double scale = rounded(largest / 127, kHalfBits);
      for (; first < end; ++first)
        x[first] = scale > 0 ? std::nearbyint(x[first] / scale) * scale : 0;
    }
    for (double& value : x) {
      if (rounding_.kv == KvType::f16) value = rounded(value, kHalfBits);
      value = rounded(value, rounding_.bits);
    }
    return x;
  }

  std::string bytes_of(const std::string& name) const {
    const GgufTensor& found = *model_.find_tensor(name);
    std::ifstream file(model_.paths()[found.file], std::ios::binary);
    std::string bytes(found.size_bytes, '\0');
    file.seekg(static_cast<std::streamoff>(found.offset));
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  }

  const std::vector<float>& tensor(const std::string& name) {
    auto [entry, is_new] = tensors_.try_emplace(name);
    if (is_new) {
      const GgufTensor& found = *model_.find_tensor(name);
      const std::string bytes = bytes_of(name);
      entry->second.resize(found.n_elems());
      dequantize(
          static_cast<QuantType>(found.ggml_type), reinterpret_cast<const std::byte*>(bytes.data()),
          entry->second.data(), found.n_elems());
    }
    return entry->second;
  }

  // Scale and minimum of the sub-block of element i of a block: value = scale q - minimum.
  static std::pair<double, double> scales_of(QuantType type, const char* block, size_t i) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(block[at]); };
    const auto half = [&](size_t at) {
      return static_cast<double>(
          half_to_float(static_cast<uint16_t>(byte(at) | byte(at + 1) << 8)));
    };
    if (type == QuantType::q6_k) return {half(208) * static_cast<int8_t>(byte(192 + i / 16)), 0};
    const size_t j = i / 32;
    const int scale = j < 4 ? byte(4 + j) & 63 : (byte(8 + j) & 15) | byte(j) >> 6 << 4;
    const int least = j < 4 ? byte(8 + j) & 63 : byte(8 + j) >> 4 | byte(4 + j) >> 6 << 4;
    return {half(0) * scale, half(2) * least};
  }
  // Weights of a K-quant whose scales were rounded first; the weight itself is not yet.
  void round_scales(const std::string& name, std::vector<double>& weights) const {
    const auto type = static_cast<QuantType>(model_.find_tensor(name)->ggml_type);
    const QuantTraits& traits = quant_traits(type);
    if (traits.block_elems != 256) return;
    const std::string bytes = bytes_of(name);
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto [scale, least] =
          scales_of(type, bytes.data() + i / 256 * traits.block_bytes, i % 256);
      const double q = scale == 0 ? 0 : std::nearbyint((weights[i] + least) / scale);
      weights[i] = q * rounded(scale, rounding_.bits) - rounded(least, rounding_.bits);
    }
  }

  std::vector<double> row(const std::string& name, size_t index) {
    const std::vector<float>& all = tensor(name);
    return {all.begin() + index * dim_, all.begin() + (index + 1) * dim_};
  }

  // The weights of a matrix, as a product takes them.
  const std::vector<double>& weights(const std::string& name) {
    auto [entry, is_new] = weights_.try_emplace(name);
    if (is_new) {
      const std::vector<float>& values = tensor(name);
      entry->second.assign(values.begin(), values.end());
      if (rounding_.rounds_scales) round_scales(name, entry->second);
      round_inputs(entry->second);
    }
    return entry->second;
  }

  std::vector<double> times(const std::string& name, std::vector<double> x) {
    const std::vector<double>& matrix = weights(name + ".weight");
    round_inputs(x);
    std::vector<double> y(matrix.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i)
        y[o] += matrix[o * x.size() + i] * x[i];
    }
    if (model_.find_tensor(name + ".bias") != nullptr) {
      const std::vector<float>& bias = tensor(name + ".bias");
      for (size_t o = 0; o < y.size(); ++o)
        y[o] += bias[o];
    }
    return y;
  }

  std::vector<double> norm(const std::vector<double>& x, const std::string& name) {
    double sum = 0;
    for (double value : x)
      sum += value * value;
    double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + epsilon_);
    std::vector<double> y(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      y[i] = x[i] * scale * tensor(name)[i];
    return y;
  }

  void turn(std::vector<double>& x, size_t position) {
    bool has_factors = model_.find_tensor("rope_freqs.weight") != nullptr;
    for (size_t head = 0; head < x.size(); head += head_dim_) {
      for (size_t j = 0; j < head_dim_ / 2; ++j) {
        double angle =
            static_cast<double>(position) *
            std::pow(base_, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim_));
        if (has_factors) angle /= tensor("rope_freqs.weight")[j];
        double a = x[head + 2 * j];
        double b = x[head + 2 * j + 1];
        x[head + 2 * j] = a * std::cos(angle) - b * std::sin(angle);
        x[head + 2 * j + 1] = a * std::sin(angle) + b * std::cos(angle);
      }
    }
  }

  std::vector<double> attend(
      const std::vector<double>& q,
      const std::vector<std::vector<double>>& keys,
      const std::vector<std::vector<double>>& values) const {
    std::vector<double> out(q.size());
    for (size_t head = 0; head < n_heads_; ++head) {
      size_t kv = head / (n_heads_ / n_kv_heads_) * head_dim_;
      std::vector<double> p(keys.size());
      double highest = -1e300;
      for (size_t t = 0; t < keys.size(); ++t) {
        for (size_t i = 0; i < head_dim_; ++i)
          p[t] += q[head * head_dim_ + i] * keys[t][kv + i];
        p[t] /= std::sqrt(static_cast<double>(head_dim_));
        highest = std::max(highest, p[t]);
      }
      double total = 0;
      for (double& value : p)
        total += value = std::exp(value - highest);
      for (double& value : p)
        value = rounded(value, rounding_.bits);
      for (size_t t = 0; t < keys.size(); ++t) {
        for (size_t i = 0; i < head_dim_; ++i) {
          out[head * head_dim_ + i] += p[t] / total * values[t][kv + i];
        }
      }
    }
    return out;
  }

  static void add(std::vector<double>& x, const std::vector<double>& y) {
    for (size_t i = 0; i < x.size(); ++i)
      x[i] += y[i];
  }

  const GgufModel& model_;
  OracleRounding rounding_;
  uint64_t noise_ = 1;
  std::map<std::string, std::vector<float>> tensors_;
  std::map<std::string, std::vector<double>> weights_;
  size_t dim_ = 0;
  size_t n_layers_ = 0;
  size_t n_heads_ = 0;
  size_t n_kv_heads_ = 0;
  size_t head_dim_ = 0;
  double base_ = 0;
  double epsilon_ = 0;
};

}  // namespace nightsweep
