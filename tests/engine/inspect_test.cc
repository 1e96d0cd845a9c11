#include "engine/inspect.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "support/text.h"
#include "support/tiny_model.h"

namespace nightsweep {
namespace {

TEST(Inspect, shows_a_model_that_can_run) {
  GgufWriter writer = make_tiny_llama({.chat_template = "{{ messages }}"});
  writer.set_string("general.license", "none");
  GgufModel model = model_of(writer);
  InspectReport report = inspect_model(model);
  EXPECT_EQ(report.why_not, "");
  EXPECT_EQ(report.n_tokens, 320U);
  EXPECT_EQ(report.types.size(), 1U);
  EXPECT_EQ(report.weight_bytes, report.n_params * sizeof(float));

  std::string text = inspect_text(model, report);
  for (const char* part :
       {"m.gguf", "GGUF 3, alignment 32", "llama", "tiny-llama", "none", "in 21 tensors",
        "in 21 of F32", "layers                    2", "llama/default, 320 tokens",
        "bos 1, eos 2, unknown 0", "chat template             14 B", "256 B in f16, 272 B in q8_0",
        "can run                   yes"}) {
    EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
  }
}

TEST(Inspect, gives_json) {
  GgufModel model = model_of(make_tiny_llama({}));
  Json json = Json::parse(inspect_json(model, inspect_model(model)).dump());
  EXPECT_EQ(json.find("file")->as_string(), "m.gguf");
  EXPECT_EQ(json.find("version")->as_integer(), 3);
  EXPECT_EQ(json.find("architecture")->as_string(), "llama");
  EXPECT_TRUE(json.find("can_run")->as_bool());
  EXPECT_TRUE(json.find("why_not")->is_null());
  EXPECT_EQ(json.find("config")->find("n_kv_heads")->as_integer(), 2);
  EXPECT_FALSE(json.find("has_chat_template")->as_bool());
  const Json& tensor = json.find("tensors")->as_array().front();
  EXPECT_EQ(tensor.find("name")->as_string(), "token_embd.weight");
  EXPECT_EQ(tensor.find("type")->as_string(), "F32");
  EXPECT_EQ(tensor.find("shape")->dump(), "[64,320]");
  EXPECT_EQ(tensor.find("bytes")->as_integer(), 64 * 320 * 4);
  const Json& metadata = *json.find("metadata");
  EXPECT_EQ(metadata.find("llama.block_count")->as_integer(), 2);
  EXPECT_EQ(metadata.find("tokenizer.ggml.tokens")->dump(), R"({"type":"string","count":320})");
  EXPECT_EQ(
      json.find("tokenizer")->find("special_ids")->dump(), R"({"bos":1,"eos":2,"unknown":0})");
}

TEST(Inspect, shows_all_of_a_sound_file_that_cannot_run_and_why_not) {
  GgufWriter writer = make_tiny_llama({});
  writer.set_u32("llama.expert_count", 8);
  GgufModel model = model_of(writer);
  InspectReport report = inspect_model(model);
  EXPECT_TRUE(contains(report.why_not, "llama.expert_count")) << report.why_not;
  std::string text = inspect_text(model, report);
  EXPECT_TRUE(contains(text, "experts                   8")) << text;
  EXPECT_TRUE(contains(text, "can run                   no")) << text;
  Json json = inspect_json(model, report);
  EXPECT_FALSE(json.find("can_run")->as_bool());
  EXPECT_EQ(json.find("why_not")->as_string(), report.why_not);
  EXPECT_TRUE(json.find("config")->is_null());
}

TEST(Inspect, shows_a_vocabulary) {
  GgufWriter writer;
  writer.set_string("general.architecture", "gpt2").set_string("tokenizer.ggml.model", "gpt2");
  writer.set_strings("tokenizer.ggml.tokens", {"a", "b"});
  GgufModel model = model_of(writer);
  InspectReport report = inspect_model(model);
  EXPECT_TRUE(contains(report.why_not, "vocabulary only"));
  EXPECT_TRUE(contains(inspect_text(model, report), "gpt2, 2 tokens"));
}

// Loading refuses such metadata; looking at it must not.
TEST(Inspect, shows_metadata_of_the_wrong_type) {
  GgufWriter writer;
  writer.set_u32("general.architecture", 7).set_bool("general.name", true);
  writer.set_f32("tokenizer.ggml.tokens", std::numeric_limits<float>::quiet_NaN());
  writer.set_strings("tokenizer.ggml.bos_token_id", {"x"}).set_u32("tokenizer.ggml._token_id", 1);
  writer.set_string("general.license", "\x1b[31mred");
  writer.set_f32_tensor("t", {1}, {1});
  GgufModel model = model_of(writer);
  InspectReport report = inspect_model(model);
  EXPECT_TRUE(contains(report.why_not, "general.architecture")) << report.why_not;
  std::string text = inspect_text(model, report);
  EXPECT_FALSE(contains(text, "\x1b"));
  EXPECT_TRUE(contains(text, "bos 1 x string")) << text;
  EXPECT_NO_THROW(Json::parse(inspect_json(model, report).dump()));
}

TEST(Inspect, writes_the_values_of_a_tensor) {
  TemporaryFolder folder;
  GgufWriter writer;
  // More than one piece.
  std::vector<float> values(600'000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) * 0.5F;
  writer.set_f32_tensor("t", {1000, 600}, values);
  writer.set_tensor("q2", {256}, 10, std::string(84, '\0'));
  std::string blocks = random_blocks(QuantType::q8_0, 64, 1.0F, 1);
  writer.set_tensor("q8", {32, 2}, static_cast<uint32_t>(QuantType::q8_0), blocks);
  writer.write(folder.path("m.gguf"));
  GgufModel model = GgufModel::open(folder.path("m.gguf"));

  std::string out;
  auto keep = [&](std::string_view piece) { out += piece; };
  write_tensor_values(model, "t", keep);
  ASSERT_EQ(out.size(), values.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(out.data(), values.data(), out.size()), 0);

  out.clear();
  write_tensor_values(model, "q8", keep);
  std::vector<float> expected(64);
  dequantize(
      QuantType::q8_0, reinterpret_cast<const std::byte*>(blocks.data()), expected.data(), 64);
  ASSERT_EQ(out.size(), expected.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size()), 0);

  EXPECT_MODEL_ERROR(write_tensor_values(model, "q2", keep), "tensor 'q2' is of type Q2_K");
  EXPECT_ERROR(
      ErrorKind::usage, write_tensor_values(model, "absent", keep), "there is no tensor 'absent'");
}

}  // namespace
}  // namespace nightsweep
