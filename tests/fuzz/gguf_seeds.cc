#include "fuzz/gguf_seeds.h"

#include "support/gguf_writer.h"

namespace nightsweep {

namespace {

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ40 = 2;

// A model of one layer that could run, had it data.
GgufWriter smallest_llama() {
  GgufWriter writer;
  writer.set_string("general.architecture", "llama")
      .set_u32("llama.block_count", 1)
      .set_u32("llama.context_length", 8)
      .set_u32("llama.embedding_length", 32)
      .set_u32("llama.feed_forward_length", 32)
      .set_u32("llama.attention.head_count", 2)
      .set_u32("llama.attention.head_count_kv", 1)
      .set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .set_f32("llama.rope.freq_base", 10000)
      .set_strings("tokenizer.ggml.tokens", {"a", "b", "c", "d"});
  writer.set_tensor("token_embd.weight", {32, 4}, kQ40, "")
      .set_tensor("output_norm.weight", {32}, kF32, "")
      .set_tensor("blk.0.attn_norm.weight", {32}, kF32, "")
      .set_tensor("blk.0.attn_q.weight", {32, 32}, kQ40, "")
      .set_tensor("blk.0.attn_k.weight", {32, 16}, kQ40, "")
      .set_tensor("blk.0.attn_v.weight", {32, 16}, kQ40, "")
      .set_tensor("blk.0.attn_output.weight", {32, 32}, kQ40, "")
      .set_tensor("blk.0.ffn_norm.weight", {32}, kF32, "")
      .set_tensor("blk.0.ffn_gate.weight", {32, 32}, kQ40, "")
      .set_tensor("blk.0.ffn_up.weight", {32, 32}, kQ40, "")
      .set_tensor("blk.0.ffn_down.weight", {32, 32}, kQ40, "");
  uint64_t offset = 0;
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight",
        "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight"}) {
    writer.force_offset(name, offset);
    offset += 1024;
  }
  return writer;
}

GgufWriter every_type() {
  GgufWriter writer;
  writer.set_u8("a", 1).set_i8("b", -1).set_u16("c", 2).set_i16("d", -2).set_u32("e", 3);
  writer.set_i32("f", -3).set_f32("g", 0.5F).set_bool("h", true).set_string("i", "text");
  writer.set_u64("j", ~0ULL).set_i64("k", -4).set_f64("l", 0.25);
  writer.set_bytes("m", {1, 2, 3}).set_i32s("n", {-1, 1}).set_f32s("o", {1, 2});
  writer.set_strings("p", {"", "x"}).set_u64s("q", {1, ~0ULL});
  writer.set_f32_tensor("t", {2, 2, 1, 1}, {1, 2, 3, 4});
  return writer;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> gguf_seeds() {
  GgufWriter fused = smallest_llama();
  for (const char* part : {"q", "k", "v"}) {
    fused.remove_tensor(std::string("blk.0.attn_") + part + ".weight");
  }
  fused.set_tensor("blk.0.attn_qkv.weight", {32, 64}, kQ40, "")
      .force_offset("blk.0.attn_qkv.weight", 20480)
      .set_f32s("llama.rope.scaling.factor", {1});
  GgufWriter linear = smallest_llama();
  linear.set_string("llama.rope.scaling.type", "linear")
      .set_f32("llama.rope.scaling.factor", 4)
      .set_i32s("llama.attention.head_count_kv", {1})
      .set_u32("llama.attention.key_length", 16)
      .set_u32("llama.attention.value_length", 16)
      .set_u32("llama.rope.dimension_count", 16)
      .set_u32("llama.expert_count", 0)
      .set_bool("llama.attention.causal", true)
      .set_u32("llama.vocab_size", 4);
  GgufWriter split;
  split.set_u16("split.no", 1).set_u16("split.count", 2).set_i32("split.tensors.count", 1);
  return {
      {"empty", ""},
      {"every_type", every_type().bytes()},
      {"version_2", every_type().set_version(2).bytes()},
      {"alignment", GgufWriter().set_alignment(64).set_f32_tensor("t", {1}, {1}).bytes()},
      {"big_endian", std::string("GGUF\0\0\0\3", 8) + std::string(16, '\0')},
      {"llama", smallest_llama().bytes()},
      {"llama_fused", fused.bytes()},
      {"llama_linear", linear.bytes()},
      {"split", split.bytes()}};
}

}  // namespace nightsweep
