#include "engine/model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/file.h"
#include "base/json.h"
#include "engine/llama_tensors.h"
#include "support/cases.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace nightsweep {
namespace {

// A tiny model, changed.
GgufWriter changed(const std::function<void(GgufWriter&)>& change) {
  GgufWriter writer = make_tiny_llama({});
  change(writer);
  return writer;
}

ModelConfig config_of(const GgufWriter& writer) {
  return read_model_config(model_of(writer));
}

ModelConfig config_with(const std::function<void(GgufWriter&)>& change) {
  return config_of(changed(change));
}

void load(const GgufWriter& writer) {
  GgufModel model = model_of(writer);
  ModelConfig config = read_model_config(model);
  check_llama_tensors(model, config);
  check_vocabulary_size(model, config);
}

void load_with(const std::function<void(GgufWriter&)>& change) {
  load(changed(change));
}

TEST(ModelConfig, reads_the_numbers_of_a_model) {
  ModelConfig config = config_of(make_tiny_llama({}));
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.n_layers, 2U);
  EXPECT_EQ(config.context_tokens, 512U);
  EXPECT_EQ(config.dim, 64U);
  EXPECT_EQ(config.ff_dim, 96U);
  EXPECT_EQ(config.n_heads, 4U);
  EXPECT_EQ(config.n_kv_heads, 2U);
  EXPECT_EQ(config.head_dim, 16U);
  EXPECT_EQ(config.n_rot, 16U);
  EXPECT_EQ(config.n_vocab, 320U);
  EXPECT_EQ(config.norm_epsilon, 1e-5F);
  EXPECT_FALSE(config.tied_output);
  EXPECT_FALSE(config.rope_half_split);
  EXPECT_EQ(config.kv_elems_per_token(), 2U * 2 * 2 * 16);
  ASSERT_EQ(config.rope_frequencies.size(), 8U);
  for (int pair = 0; pair < 8; ++pair) {
    EXPECT_DOUBLE_EQ(config.rope_frequencies[pair], std::pow(10000.0, -pair / 8.0));
  }
  EXPECT_TRUE(config_of(make_tiny_llama({.tied = true})).tied_output);
}

TEST(ModelConfig, fills_in_what_may_be_left_out) {
  ModelConfig config = config_with([](GgufWriter& writer) {
    writer.remove_key("llama.attention.head_count_kv")
        .remove_key("llama.rope.freq_base")
        .remove_key("llama.rope.dimension_count")
        .remove_key("llama.vocab_size");
  });
  EXPECT_EQ(config.n_kv_heads, 4U);
  EXPECT_EQ(config.n_rot, 16U);
  EXPECT_DOUBLE_EQ(config.rope_frequencies[1], std::pow(10000.0, -1 / 8.0));
}

TEST(ModelConfig, takes_a_head_length_of_its_own) {
  ModelConfig config = config_of(make_tiny_llama({.head_dim = 32}));
  EXPECT_EQ(config.head_dim, 32U);
  EXPECT_NO_THROW(load(make_tiny_llama({.head_dim = 32})));
  // Then the embedding need not be a multiple of the heads.
  EXPECT_NO_THROW(load(make_tiny_llama({.n_heads = 3, .n_kv_heads = 1, .head_dim = 32})));
  EXPECT_MODEL_ERROR(
      config_with([](GgufWriter& writer) { writer.set_u32("llama.attention.value_length", 8); }),
      "'llama.attention.value_length' is 8, but keys have 16");
}

TEST(ModelConfig, turns_more_slowly_where_the_file_says_so) {
  double plain = config_of(make_tiny_llama({})).rope_frequencies[3];
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    ModelConfig config = config_with([&](GgufWriter& writer) { writer.set_f32(key, 4); });
    EXPECT_DOUBLE_EQ(config.rope_frequencies[3], plain / 4);
    config = config_with([&](GgufWriter& writer) {
      writer.set_f32(key, 4).set_string("llama.rope.scaling.type", "linear");
    });
    EXPECT_DOUBLE_EQ(config.rope_frequencies[3], plain / 4);
    config = config_with([&](GgufWriter& writer) {
      writer.set_f32(key, 4).set_string("llama.rope.scaling.type", "none");
    });
    EXPECT_DOUBLE_EQ(config.rope_frequencies[3], plain);
  }
  EXPECT_MODEL_ERROR(
      config_with([](GgufWriter& writer) {
        writer.set_f32("llama.rope.scaling.factor", 4).set_f32("llama.rope.scale_linear", 8);
      }),
      "'llama.rope.scale_linear' is 8, but 'llama.rope.scaling.factor' is 4");

  GgufModel model = model_of(make_tiny_llama({}));
  std::vector<float> factors = {1, 1, 1, 2, 4, 8, 8, 8};
  EXPECT_DOUBLE_EQ(read_model_config(model, factors).rope_frequencies[3], plain / 2);
  factors[3] = 0;
  EXPECT_MODEL_ERROR(read_model_config(model, factors), "rotation of pair 3 is impossible");
  factors[3] = NAN;
  EXPECT_MODEL_ERROR(read_model_config(model, factors), "rotation of pair 3 is impossible");
  EXPECT_MODEL_ERROR(
      read_model_config(model, {1, 2}), "'rope_freqs.weight' has 2 elements, expected 8");
}

TEST(ModelConfig, reads_rope_factors_from_the_file) {
  TemporaryFolder folder;
  write_tiny_llama(folder.path("m.gguf"), {.rope_freqs = true});
  GgufModel model = GgufModel::open(folder.path("m.gguf"));
  ModelConfig config = read_model_config(model);
  EXPECT_DOUBLE_EQ(config.rope_frequencies[0], 1.0);
  EXPECT_DOUBLE_EQ(config.rope_frequencies[7], std::pow(10000.0, -7 / 8.0) / 8);
  EXPECT_NO_THROW(check_llama_tensors(model, config));
}

TEST(ModelConfig, takes_arrays_that_are_equal_in_every_layer) {
  const char* keys[] = {
      "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv"};
  int32_t values[] = {96, 4, 2};
  for (int i = 0; i < 3; ++i) {
    auto with = [&](const std::vector<int32_t>& array) {
      return config_with([&](GgufWriter& writer) { writer.set_i32s(keys[i], array); });
    };
    EXPECT_NO_THROW(with({values[i], values[i]})) << keys[i];
    EXPECT_MODEL_ERROR(with({values[i], 1}), format("'{}' differs between layers", keys[i]));
    EXPECT_MODEL_ERROR(with({values[i]}), format("'{}' has 1 elements", keys[i]));
    EXPECT_MODEL_ERROR(with({-4, -4}), format("'{}' is -4", keys[i]));
  }
}

TEST(ModelConfig, names_a_number_that_is_missing) {
  for (const char* key :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    std::string name = format("llama.{}", key);
    EXPECT_MODEL_ERROR(
        config_with([&](GgufWriter& writer) { writer.remove_key(name); }),
        format("m.gguf: key '{}' is missing", name));
  }
}

TEST(ModelConfig, names_a_number_that_is_impossible) {
  struct Case {
    const char* key;
    uint64_t value;
    const char* message;
  };
  const Case cases[] = {
      {"llama.block_count", 0, "is 0, expected 1 to 1024"},
      {"llama.block_count", 1025, "is 1025, expected 1 to 1024"},
      {"llama.block_count", 1ULL << 31, "expected 1 to 1024"},
      {"llama.context_length", 1ULL << 40, "is 1099511627776, expected 0 to"},
      {"llama.embedding_length", 0, "is 0, expected 1 to"},
      {"llama.embedding_length", ~0ULL, "is 18446744073709551615, expected 1 to"},
      {"llama.embedding_length", 66, "is 4, expected a divisor of the embedding length 66"},
      {"llama.feed_forward_length", 0, "is 0, expected 1 to"},
      {"llama.attention.head_count", 0, "is 0, expected 1 to"},
      {"llama.attention.head_count", 5, "head_count_kv' is 2, expected a divisor of the 5 heads"},
      {"llama.attention.head_count_kv", 0, "is 0, expected 1 to"},
      {"llama.attention.head_count_kv", 3, "is 3, expected a divisor of the 4 heads"},
      {"llama.attention.head_count_kv", 8, "is 8, expected a divisor of the 4 heads"},
      {"llama.attention.key_length", 0, "is 0, expected 2 to"},
      {"llama.rope.dimension_count", 0, "is 0, expected an even number equal to the 16"},
      {"llama.rope.dimension_count", 8, "is 8, expected an even number equal to the 16"},
  };
  for (const Case& entry : cases) {
    auto change = [&](GgufWriter& writer) { writer.set_u64(entry.key, entry.value); };
    EXPECT_MODEL_ERROR(config_with(change), entry.message);
  }
  for (float number : {0.0F, -1e-5F, 1.0F, NAN, INFINITY}) {
    auto epsilon = [&](GgufWriter& writer) {
      writer.set_f32("llama.attention.layer_norm_rms_epsilon", number);
    };
    EXPECT_MODEL_ERROR(config_with(epsilon), "'llama.attention.layer_norm_rms_epsilon' is");
  }
  for (float number : {0.0F, -10000.0F, NAN, INFINITY}) {
    for (const char* key : {"llama.rope.freq_base", "llama.rope.scaling.factor"}) {
      auto rope = [&](GgufWriter& writer) { writer.set_f32(key, number); };
      EXPECT_MODEL_ERROR(config_with(rope), format("'{}' is", key));
    }
  }
  auto odd = [](GgufWriter& writer) {
    writer.set_u32("llama.attention.key_length", 15).set_u32("llama.attention.value_length", 15);
    writer.set_u32("llama.rope.dimension_count", 15);
  };
  EXPECT_MODEL_ERROR(config_with(odd), "is 15, expected an even number");
}

TEST(ModelConfig, a_context_of_0_means_unknown) {
  EXPECT_EQ(
      config_with([](GgufWriter& writer) {
        writer.set_u32("llama.context_length", 0);
      }).context_tokens,
      0U);
}

TEST(ModelConfig, refuses_by_name_what_would_change_the_numbers) {
  for (const char* type : {"yarn", "longrope", "llama3"}) {
    EXPECT_MODEL_ERROR(
        config_with(
            [&](GgufWriter& writer) { writer.set_string("llama.rope.scaling.type", type); }),
        format("'llama.rope.scaling.type' is '{}', which is not supported", type));
  }
  const std::pair<const char*, const char*> keys[] = {
      {"llama.attention.sliding_window", "sliding-window attention"},
      {"llama.expert_count", "a mixture of experts"},
      {"llama.attn_logit_softcapping", "soft-capped attention scores"},
      {"llama.final_logit_softcapping", "soft-capped logits"},
      {"llama.logit_scale", "scaled logits"},
  };
  for (const auto& key : keys) {
    EXPECT_MODEL_ERROR(
        config_with([&](GgufWriter& writer) { writer.set_u32(key.first, 3); }),
        format("'{}' is 3: {} is not supported", key.first, key.second));
  }
  EXPECT_MODEL_ERROR(
      config_with([](GgufWriter& writer) { writer.set_bool("llama.attention.causal", false); }),
      "'llama.attention.causal' is 0");
  EXPECT_MODEL_ERROR(
      config_with([](GgufWriter& writer) { writer.set_u32("llama.new_idea", 0); }),
      "key 'llama.new_idea' is not known and might change the numbers");
  EXPECT_MODEL_ERROR(
      config_with([](GgufWriter& writer) { writer.set_string("general.type", "adapter"); }),
      "'general.type' is 'adapter', expected 'model'");
  EXPECT_MODEL_ERROR(
      config_with(
          [](GgufWriter& writer) { writer.set_string("llama.tensor_data_layout", "other"); }),
      "'llama.tensor_data_layout' is 'other'");
}

TEST(ModelConfig, accepts_keys_at_their_neutral_value) {
  EXPECT_NO_THROW(config_with([](GgufWriter& writer) {
    writer.set_u32("llama.attention.sliding_window", 0)
        .set_u32("llama.expert_count", 0)
        .set_f32("llama.attn_logit_softcapping", 0)
        .set_f32("llama.logit_scale", 1)
        .set_bool("llama.attention.causal", true)
        .set_bool("llama.use_parallel_residual", false)
        .set_string("llama.tensor_data_layout", "Meta AI original pth")
        .set_u32("llama.rope.scaling.original_context_length", 8192)
        .set_u32("llama.vocab_size", 12345)
        .set_string("general.type", "model");
  }));
}

TEST(ModelConfig, refuses_other_architectures_by_name) {
  EXPECT_MODEL_ERROR(
      config_with([](GgufWriter& writer) { writer.set_string("general.architecture", "qwen2"); }),
      "architecture 'qwen2' is not supported yet; known: llama");
  EXPECT_MODEL_ERROR(
      config_with([](GgufWriter& writer) { writer.remove_key("general.architecture"); }),
      "key 'general.architecture' is missing");
  EXPECT_MODEL_ERROR(
      config_with([](GgufWriter& writer) { writer.set_u32("general.architecture", 1); }),
      "key 'general.architecture': expected a string, found u32");
}

TEST(ModelConfig, says_that_a_vocabulary_cannot_run) {
  GgufWriter writer;
  writer.set_string("general.architecture", "gpt2");
  EXPECT_MODEL_ERROR(config_of(writer), "vocabulary only");
}

TEST(ModelConfig, needs_one_token_for_each_row_of_the_embedding) {
  EXPECT_NO_THROW(load_with([](GgufWriter&) {}));
  EXPECT_MODEL_ERROR(
      load_with([](GgufWriter& writer) {
        writer.set_strings("tokenizer.ggml.tokens", std::vector<std::string>(5, "x"));
      }),
      "'tokenizer.ggml.tokens' has 5 tokens, but 'token_embd.weight' has 320 rows");
  EXPECT_MODEL_ERROR(
      load_with([](GgufWriter& writer) { writer.remove_key("tokenizer.ggml.tokens"); }),
      "key 'tokenizer.ggml.tokens' is missing");
}

TEST(LlamaTensors, finds_all_tensors) {
  for (bool fused : {false, true}) {
    GgufModel model = model_of(make_tiny_llama({.tied = true, .biases = true, .fused_qkv = fused}));
    ModelConfig config = read_model_config(model);
    LlamaTensors tensors = check_llama_tensors(model, config);
    EXPECT_EQ(tensors.token_embd, model.find_tensor("token_embd.weight"));
    EXPECT_EQ(tensors.output, tensors.token_embd);
    ASSERT_EQ(tensors.layers.size(), 2U);
    const LlamaLayerTensors& layer = tensors.layers[1];
    EXPECT_EQ(layer.attn_qkv, model.find_tensor("blk.1.attn_qkv.weight"));
    EXPECT_EQ(layer.attn_qkv_bias, model.find_tensor("blk.1.attn_qkv.bias"));
    EXPECT_EQ(layer.attn_q, model.find_tensor("blk.1.attn_q.weight"));
    EXPECT_EQ(layer.attn_v_bias, model.find_tensor("blk.1.attn_v.bias"));
    EXPECT_EQ(layer.ffn_down_bias, model.find_tensor("blk.1.ffn_down.bias"));
    EXPECT_EQ(layer.attn_qkv != nullptr, fused);
    EXPECT_EQ(layer.attn_q == nullptr, fused);
  }
}

TEST(LlamaTensors, names_what_is_missing) {
  for (const char* name :
       {"output_norm.weight", "blk.1.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_k.weight", "blk.1.attn_v.weight", "blk.0.attn_output.weight",
        "blk.0.ffn_norm.weight", "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight",
        "blk.1.ffn_down.weight"}) {
    EXPECT_MODEL_ERROR(
        load_with([&](GgufWriter& writer) { writer.remove_tensor(name); }),
        format("m.gguf: tensor '{}' is missing", name));
  }
  EXPECT_MODEL_ERROR(
      load_with([](GgufWriter& writer) { writer.remove_tensor("token_embd.weight"); }),
      "tensor 'token_embd.weight' is missing");
}

TEST(LlamaTensors, names_a_wrong_shape_with_what_was_expected) {
  auto with = [](const char* name, const std::vector<uint64_t>& dims) {
    uint64_t n_elems = 1;
    for (uint64_t dim : dims)
      n_elems *= dim;
    load_with([&](GgufWriter& writer) {
      writer.set_f32_tensor(name, dims, std::vector<float>(n_elems));
    });
  };
  EXPECT_MODEL_ERROR(
      with("blk.0.attn_k.weight", {64, 64}),
      "tensor 'blk.0.attn_k.weight' has shape [64, 64], expected [64, 32]");
  EXPECT_MODEL_ERROR(with("output.weight", {64, 319}), "has shape [64, 319], expected [64, 320]");
  EXPECT_MODEL_ERROR(
      with("token_embd.weight", {320, 64}), "token_embd.weight' has shape [320, 64]");
  EXPECT_MODEL_ERROR(with("token_embd.weight", {64}), "token_embd.weight' is a vector");
  EXPECT_MODEL_ERROR(with("output_norm.weight", {64, 2}), "has shape [64, 2], expected [64]");
  EXPECT_MODEL_ERROR(with("blk.1.attn_q.bias", {63}), "has shape [63], expected [64]");
  EXPECT_NO_THROW(with("output_norm.weight", {64, 1}));
}

TEST(LlamaTensors, refuses_by_name_what_it_does_not_expect) {
  for (const char* name :
       {"blk.2.attn_norm.weight", "blk.0.attn_q_norm.weight", "blk.0.ffn_gate.scale", "surprise",
        "blk.0.attn_qkv.bias"}) {
    EXPECT_MODEL_ERROR(
        load_with([&](GgufWriter& writer) { writer.set_f32_tensor(name, {1}, {1}); }),
        format("tensor '{}' of shape [1] is not expected", name));
  }
}

TEST(LlamaTensors, refuses_a_type_that_cannot_be_computed_with) {
  constexpr uint32_t kQ2K = 10;
  GgufWriter writer = make_tiny_llama({.dim = 256, .ff_dim = 256});
  writer.set_tensor("blk.1.ffn_up.weight", {256, 256}, kQ2K, std::string(84 * 256, '\0'));
  EXPECT_MODEL_ERROR(load(writer), "tensor 'blk.1.ffn_up.weight' is of type Q2_K");
}

TEST(LlamaTensors, every_tiny_model_is_sound) {
  for (QuantType type :
       {QuantType::f32, QuantType::f16, QuantType::bf16, QuantType::q4_0, QuantType::q4_1,
        QuantType::q5_0, QuantType::q5_1, QuantType::q8_0, QuantType::q4_k, QuantType::q5_k,
        QuantType::q6_k}) {
    EXPECT_NO_THROW(load(make_tiny_llama({.dim = 256, .ff_dim = 512, .type = type})))
        << quant_traits(type).name;
  }
}

// What the manifest says of parameters and tensors; vocabulary and template are others' part.
TEST(ModelConfig, shared_malformed_files_end_as_their_manifest_says) {
  NEEDS_CASES("gguf-malformed");
  std::string folder = cases_folder() + "/gguf-malformed/";
  Json manifest = Json::parse(read_whole_file(folder + "manifest.json", ErrorKind::input));
  for (const Json& entry : manifest.as_array()) {
    std::string name = entry.find("file")->as_string();
    bool is_accepted = name == "s-context_length-0.gguf" || name.starts_with("c-") ||
                       (name.starts_with("v-") && name != "v-few-tokens.gguf");
    std::string text = text_of_error(ErrorKind::model, [&] {
      GgufModel model = GgufModel::open(folder + name);
      ModelConfig config = read_model_config(model);
      check_llama_tensors(model, config);
      check_vocabulary_size(model, config);
    });
    EXPECT_EQ(text.empty(), is_accepted) << name << ": " << text;
  }
}

TEST(ModelConfig, shared_tiny_models_that_are_llamas_can_run) {
  NEEDS_CASES("tiny-models");
  std::string folder = cases_folder() + "/tiny-models/";
  Json manifest = Json::parse(read_whole_file(folder + "manifest.json", ErrorKind::input));
  for (const Json& entry : manifest.find("models")->as_array()) {
    std::string name = entry.find("name")->as_string();
    std::string text = text_of_error(ErrorKind::model, [&] {
      GgufModel model = GgufModel::open(folder + name + ".gguf");
      ModelConfig config = read_model_config(model);
      check_llama_tensors(model, config);
      check_vocabulary_size(model, config);
    });
    EXPECT_EQ(text.empty(), name.starts_with("llama")) << name << ": " << text;
  }
}

}  // namespace
}  // namespace nightsweep
