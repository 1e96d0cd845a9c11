// The forward pass against exact logits: a double oracle of our own for tiny models made here, and
// the shared cases.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/engine_fixture.h"
#include "engine/llama_oracle.h"

namespace nightsweep {
namespace {

const CpuOptions kExact{.math = MathMode::exact, .n_threads = 2};
const EngineOptions kF32Cache{.ram_bytes = 256 << 20, .kv_type = KvType::f32};

struct Distance {
  double largest_difference = 0;
  double largest_kl = 0;
  double mean_kl = 0;
};

// KL(exact || ours) and the largest logit difference over all positions.
template <typename Exact>
Distance distance(const Exact& exact, const std::vector<float>& ours, size_t n_vocab) {
  Distance far;
  for (size_t row = 0; row * n_vocab < ours.size(); ++row) {
    double exact_total = 0;
    double our_total = 0;
    for (size_t i = 0; i < n_vocab; ++i) {
      exact_total += std::exp(static_cast<double>(exact(row, i)));
      our_total += std::exp(static_cast<double>(ours[row * n_vocab + i]));
    }
    double kl = 0;
    for (size_t i = 0; i < n_vocab; ++i) {
      double p = exact(row, i) - std::log(exact_total);
      double q = ours[row * n_vocab + i] - std::log(our_total);
      kl += std::exp(p) * (p - q);
      far.largest_difference = std::max(
          far.largest_difference,
          std::abs(exact(row, i) - static_cast<double>(ours[row * n_vocab + i])));
    }
    far.largest_kl = std::max(far.largest_kl, kl);
    far.mean_kl += kl * static_cast<double>(n_vocab) / static_cast<double>(ours.size());
  }
  return far;
}

struct Variant {
  const char* name;
  TinyModelOptions model;
};

const Variant kVariants[] = {
    {"plain", {}},
    {"tied", {.tied = true}},
    {"rope_freqs", {.rope_freqs = true}},
    {"biases", {.biases = true}},
    {"fused_qkv", {.fused_qkv = true}},
    {"own_head_dim", {.n_heads = 3, .n_kv_heads = 1, .head_dim = 32}},
    {"no_gqa", {.n_heads = 4, .n_kv_heads = 4}},
    {"rope_base", {.rope_base = 500000.0F}},
    {"epsilon", {.norm_epsilon = 1e-3F}},
    {"f16", {.type = QuantType::f16}},
    {"bf16", {.type = QuantType::bf16}},
    {"q4_0", {.type = QuantType::q4_0}},
    {"q4_1", {.type = QuantType::q4_1}},
    {"q5_0", {.type = QuantType::q5_0}},
    {"q5_1", {.type = QuantType::q5_1}},
    {"q8_0", {.type = QuantType::q8_0, .tied = true}},
    {"q4_k", {.dim = 256, .n_heads = 4, .ff_dim = 512, .type = QuantType::q4_k}},
    {"q5_k", {.dim = 256, .n_heads = 4, .ff_dim = 512, .type = QuantType::q5_k}},
    {"q6_k", {.dim = 256, .n_heads = 4, .ff_dim = 512, .type = QuantType::q6_k, .tied = true}},
};

TEST(Llama, exact_logits_equal_a_double_oracle) {
  TemporaryFolder folder;
  for (const Variant& variant : kVariants) {
    std::string path = folder.path(std::string(variant.name) + ".gguf");
    write_tiny_llama(path, variant.model);
    std::vector<uint32_t> tokens = random_tokens(70, 320, 11);  // crosses a KV page
    auto engine = open_engine(path, kExact, kF32Cache);
    auto gguf = open_gguf(path);
    auto exact = LlamaOracle(*gguf).logits(tokens);
    Distance far = distance(
        [&](size_t row, size_t i) { return exact[row][i]; }, all_logits(*engine, tokens), 320);
    EXPECT_LT(far.largest_difference, 1e-4) << variant.name;
    EXPECT_LT(far.largest_kl, 1e-6) << variant.name;
  }
}

TEST(Llama, fast_logits_stay_near_the_exact_ones) {
  TemporaryFolder folder;
  for (const Variant& variant : kVariants) {
    std::string path = folder.path(std::string(variant.name) + ".gguf");
    write_tiny_llama(path, variant.model);
    std::vector<uint32_t> tokens = random_tokens(70, 320, 12);
    auto exact = open_engine(path, kExact, kF32Cache);
    auto fast = open_engine(path, {.math = MathMode::fast, .n_threads = 2}, kF32Cache);
    std::vector<float> reference = all_logits(*exact, tokens);
    Distance far = distance(
        [&](size_t row, size_t i) { return reference[row * 320 + i]; }, all_logits(*fast, tokens),
        320);
    // What llama.cpp's rounding of activations costs on such models: up to 7e-3.
    EXPECT_LT(far.largest_kl, 2e-2) << variant.name;
  }
}

std::vector<float> flat(const std::vector<std::vector<double>>& rows) {
  std::vector<float> all;
  for (const std::vector<double>& row : rows)
    all.insert(all.end(), row.begin(), row.end());
  return all;
}

// What a GPU's arithmetic may cost a model. The oracle rounds where kernels/cuda/linear.h and
// attention.h say that the kernels do, and nowhere else: inputs of products and weights once to
// half precision, scales of K-quants before that, keys and values as the cache does. Tiny models of
// random weights lie far apart (a factor of 60 in KL for the same roundings), so that one number
// for all of them would be loose for most and wrong for some. How far one pass falls from the exact
// one is chance too: the largest of a few draws counts, times two. An H200 came within 1.2 times it
// for every model.
class BarOfHalves {
 public:
  BarOfHalves(const GgufModel& model, const std::vector<uint32_t>& tokens, KvType kv) {
    const std::vector<std::vector<double>> exact = LlamaOracle(model).logits(tokens);
    for (uint32_t draw = 1; draw <= 4; ++draw) {
      const Distance far = distance_of(model, tokens, exact, arithmetic(11, kv, draw));
      largest_kl_ = std::max(largest_kl_, far.largest_kl);
      mean_kl_ = std::max(mean_kl_, far.mean_kl);
    }
  }
  static OracleRounding arithmetic(int bits, KvType kv, uint32_t draw) {
    return {.bits = bits, .kv = kv, .rounds_scales = true, .draw = draw};
  }
  static Distance distance_of(
      const GgufModel& model,
      const std::vector<uint32_t>& tokens,
      const std::vector<std::vector<double>>& exact,
      const OracleRounding& rounding) {
    return distance(
        [&](size_t row, size_t i) { return exact[row][i]; },
        flat(LlamaOracle(model, rounding).logits(tokens)), exact[0].size());
  }

  bool allows(const Distance& far) const {
    return far.largest_kl < kRoom * largest_kl_ && far.mean_kl < kRoom * mean_kl_;
  }
  std::string text(const Distance& far) const {
    return format(
        "KL {:.1e} (mean {:.1e}); halves alone {:.1e} (mean {:.1e})", far.largest_kl, far.mean_kl,
        largest_kl_, mean_kl_);
  }

 private:
  static constexpr double kRoom = 2;
  double largest_kl_ = 0;
  double mean_kl_ = 0;
};

// The bar is no bar unless it lets through what it is made of and catches coarser numbers.
TEST(Llama, the_bar_of_halves_catches_products_with_two_bits_less) {
  TemporaryFolder folder;
  for (const Variant& variant : kVariants) {
    if (variant.model.type == QuantType::f32 && std::string(variant.name) != "plain") continue;
    std::string path = folder.path(std::string(variant.name) + ".gguf");
    write_tiny_llama(path, variant.model);
    std::vector<uint32_t> tokens = random_tokens(24, 320, 12);
    auto gguf = open_gguf(path);
    const BarOfHalves bar(*gguf, tokens, KvType::f16);
    auto exact = LlamaOracle(*gguf).logits(tokens);
    for (int bits : {11, 9}) {
      const Distance far = BarOfHalves::distance_of(
          *gguf, tokens, exact, BarOfHalves::arithmetic(bits, KvType::f16, 9));
      EXPECT_EQ(bar.allows(far), bits == 11)
          << variant.name << ", " << bits << " bits: " << bar.text(far);
    }
  }
}

TEST(Llama, cuda_logits_are_as_near_the_exact_ones_as_half_precision_allows) {
  NEEDS_GPU(true);
  TemporaryFolder folder;
  for (const Variant& variant : kVariants) {
    std::string path = folder.path(std::string(variant.name) + ".gguf");
    write_tiny_llama(path, variant.model);
    std::vector<uint32_t> tokens = random_tokens(70, 320, 12);
    auto gguf = open_gguf(path);
    auto exact = LlamaOracle(*gguf).logits(tokens);
    for (KvType kv : {KvType::f16, KvType::q8_0}) {
      const BarOfHalves bar(*gguf, tokens, kv);
      auto engine = open_engine_on(cuda_spec(), path, {.kv_type = kv});
      Distance far = distance(
          [&](size_t row, size_t i) { return exact[row][i]; }, all_logits(*engine, tokens), 320);
      EXPECT_TRUE(bar.allows(far)) << variant.name << " " << kv_type_name(kv);
      std::printf("%s %s: %s\n", variant.name, kv_type_name(kv), bar.text(far).c_str());
    }
  }
}

std::vector<float> read_floats(const std::string& path) {
  std::string bytes = read_whole_file(path, ErrorKind::input);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

struct SharedModel {
  std::string name;
  std::vector<uint32_t> greedy;  // greedy_next
  double llama_cpp_kl = 0;       // the largest of llama.cpp
};
struct SharedCase {
  std::vector<uint32_t> prompt;
  std::vector<SharedModel> models;
};

SharedCase read_manifest(const std::string& folder) {
  Json manifest = Json::parse(read_whole_file(folder + "/manifest.json", ErrorKind::input));
  SharedCase shared;
  for (const Json& id : manifest.find("prompt_tokens")->as_array()) {
    shared.prompt.push_back(static_cast<uint32_t>(id.as_integer()));
  }
  for (const Json& model : manifest.find("models")->as_array()) {
    if (!model.find("name")->as_string().starts_with("llama")) continue;
    std::vector<uint32_t> greedy;
    for (const Json& id : model.find("greedy_next")->as_array()) {
      greedy.push_back(static_cast<uint32_t>(id.as_integer()));
    }
    shared.models.push_back(
        {model.find("name")->as_string(), greedy,
         model.find("kl_exact_vs_llamacpp")->find("max")->as_double()});
  }
  return shared;
}

TEST(Llama, cuda_gives_the_logits_of_shared_tiny_models) {
  NEEDS_GPU(true);
  NEEDS_CASES("tiny-models/manifest.json");
  std::string folder = cases_folder() + "/tiny-models";
  SharedCase shared = read_manifest(folder);
  for (const auto& [name, greedy, llama_cpp_kl] : shared.models) {
    auto engine = open_engine_on(cuda_spec(), folder + "/" + name + ".gguf", {});
    std::vector<float> exact = read_floats(folder + "/" + name + ".logits.f32");
    std::vector<float> ours = all_logits(*engine, shared.prompt);
    ASSERT_EQ(ours.size(), exact.size()) << name;
    Distance far = distance([&](size_t row, size_t i) { return exact[row * 320 + i]; }, ours, 320);
    const BarOfHalves bar(*open_gguf(folder + "/" + name + ".gguf"), shared.prompt, KvType::f16);
    EXPECT_TRUE(bar.allows(far)) << name;
    // As the cases have it: an engine that rounds activations is not much further away than
    // llama.cpp is, to half for F16 and to 8 bits for quantized weights. It has none for F32.
    if (name.starts_with("llama-f16") || name.starts_with("llama-q")) {
      EXPECT_LT(far.largest_kl, 3 * llama_cpp_kl) << name;
    }
    std::printf("%s: %s\n", name.c_str(), bar.text(far).c_str());
    for (size_t row = 0; row < greedy.size(); ++row) {
      auto begin = ours.begin() + static_cast<ptrdiff_t>(row * 320);
      EXPECT_EQ(std::max_element(begin, begin + 320) - begin, greedy[row])
          << name << " row " << row;
    }
    EXPECT_EQ(all_logits(*engine, shared.prompt, 7), ours) << name;
  }
}

TEST(Llama, shared_tiny_models_give_their_exact_logits) {
  NEEDS_CASES("tiny-models/manifest.json");
  std::string folder = cases_folder() + "/tiny-models";
  SharedCase shared = read_manifest(folder);
  ASSERT_GE(shared.models.size(), 8U);
  for (const auto& [name, greedy, unused] : shared.models) {
    auto engine = open_engine(folder + "/" + name + ".gguf", kExact, kF32Cache);
    std::vector<float> exact = read_floats(folder + "/" + name + ".logits.f32");
    std::vector<float> ours = all_logits(*engine, shared.prompt);
    ASSERT_EQ(ours.size(), exact.size()) << name;
    Distance far = distance([&](size_t row, size_t i) { return exact[row * 320 + i]; }, ours, 320);
    EXPECT_LT(far.largest_difference, 1e-4) << name;
    EXPECT_LT(far.largest_kl, 1e-6) << name;
    for (size_t row = 0; row < greedy.size(); ++row) {
      auto begin = ours.begin() + static_cast<ptrdiff_t>(row * 320);
      EXPECT_EQ(std::max_element(begin, begin + 320) - begin, greedy[row])
          << name << " row " << row;
    }
  }
}

TEST(Llama, the_same_weights_stored_differently_give_the_same_bits) {
  NEEDS_CASES("gguf-variants");
  std::vector<uint32_t> tokens = random_tokens(48, 320, 5);
  auto plain = open_engine(cases_folder() + "/tiny-models/llama-f32.gguf", kExact, kF32Cache);
  std::vector<float> expected = all_logits(*plain, tokens);
  for (const char* name : {"v2", "align64", "split-00001-of-00003", "fused-qkv"}) {
    auto engine =
        open_engine(cases_folder() + "/gguf-variants/" + name + ".gguf", kExact, kF32Cache);
    EXPECT_EQ(all_logits(*engine, tokens), expected) << name;
  }
}

}  // namespace
}  // namespace nightsweep
