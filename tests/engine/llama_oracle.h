// The llama architecture in double precision, written from its formulas alone: one position after
// the other, no cache tricks, no kernels of the product.
#pragma once

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "engine/gguf.h"
#include "kernels/quant.h"

namespace nightsweep {

class LlamaOracle {
 public:
  explicit LlamaOracle(const GgufModel& model) : model_(model) {
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
        keys[l].push_back(k);
        values[l].push_back(v);
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
  const std::vector<float>& tensor(const std::string& name) {
    auto [entry, is_new] = tensors_.try_emplace(name);
    if (is_new) {
      const GgufTensor& found = *model_.find_tensor(name);
      std::ifstream file(model_.paths()[found.file], std::ios::binary);
      std::vector<char> bytes(found.size_bytes);
      file.seekg(static_cast<std::streamoff>(found.offset));
      file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      entry->second.resize(found.n_elems());
      dequantize(
          static_cast<QuantType>(found.ggml_type), reinterpret_cast<const std::byte*>(bytes.data()),
          entry->second.data(), found.n_elems());
    }
    return entry->second;
  }

  std::vector<double> row(const std::string& name, size_t index) {
    const std::vector<float>& all = tensor(name);
    return {all.begin() + index * dim_, all.begin() + (index + 1) * dim_};
  }

  std::vector<double> times(const std::string& name, const std::vector<double>& x) {
    const std::vector<float>& matrix = tensor(name + ".weight");
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
  std::map<std::string, std::vector<float>> tensors_;
  size_t dim_ = 0;
  size_t n_layers_ = 0;
  size_t n_heads_ = 0;
  size_t n_kv_heads_ = 0;
  size_t head_dim_ = 0;
  double base_ = 0;
  double epsilon_ = 0;
};

}  // namespace nightsweep
