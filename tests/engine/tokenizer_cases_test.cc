// The tokenizer against the shared cases: ids of llama.cpp and Hugging Face, four vocabularies and
// one real model.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "engine/normalize.h"
#include "engine/tokenizer.h"
#include "support/cases.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

// Unpacked for as long as it takes to read. Null: there is no xz.
std::unique_ptr<Tokenizer> unpack_vocabulary(const std::string& name) {
  const TemporaryFolder folder;
  const std::string path = folder.path("vocabulary.gguf");
  const std::string command = "xz -dc '" + cases_folder() + "/tokenizer/vocab/" + name +
                              ".gguf.xz' > '" + path + "' 2> /dev/null";
  if (std::system(command.c_str()) != 0) return nullptr;
  return Tokenizer::from_gguf(GgufModel::open(path));
}

const Tokenizer* vocabulary(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  if (!loaded.contains(name)) loaded[name] = unpack_vocabulary(name);
  return loaded[name].get();
}

std::vector<Json> read_lines(const std::string& path) {
  std::istringstream text(read_whole_file(path, ErrorKind::input));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);)
    lines.push_back(Json::parse(line));
  return lines;
}

#define NEEDS_VOCABULARY(variable, name)                                            \
  NEEDS_CASES("tokenizer");                                                         \
  const Tokenizer* variable = vocabulary(name);                                     \
  if ((variable) == nullptr) GTEST_SKIP() << "SKIPPED: no xz to unpack " << (name); \
  static_assert(true)

class Vocabulary : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Tokenizer,
    Vocabulary,
    ::testing::Values("gpt-2", "llama-bpe", "llama-spm", "qwen2"),
    [](const auto& param) {
      std::string name = param.param;
      for (char& c : name)
        c = c == '-' ? '_' : c;
      return name;
    });

TEST_P(Vocabulary, gives_the_ids_of_llama_cpps_own_tests) {
  NEEDS_VOCABULARY(tokenizer, GetParam());
  const std::string folder = cases_folder() + "/tokenizer/cases/" + GetParam();
  const std::string input = read_whole_file(folder + ".inp", ErrorKind::input);
  std::istringstream output(read_whole_file(folder + ".out", ErrorKind::input));
  const std::string separator = "\n__ggml_vocab_test__\n";
  size_t n_cases = 0;
  size_t begin = 0;
  for (size_t end = input.find(separator); end != std::string::npos;
       end = input.find(separator, begin)) {
    const std::string text = input.substr(begin, end - begin);
    begin = end + separator.size();
    std::string line;
    ASSERT_TRUE(std::getline(output, line));
    std::vector<uint32_t> expected;
    std::istringstream numbers(line);
    for (uint32_t id = 0; numbers >> id;)
      expected.push_back(id);
    EXPECT_EQ(tokenizer->encode(text, false, false), expected) << text;
    ++n_cases;
  }
  EXPECT_EQ(n_cases, 23U);
}

TEST_P(Vocabulary, gives_the_ids_of_the_extended_cases) {
  NEEDS_VOCABULARY(tokenizer, GetParam());
  const auto lines = read_lines(cases_folder() + "/tokenizer/extended/" + GetParam() + ".jsonl");
  ASSERT_EQ(lines.size(), 296U);
  for (const Json& line : lines) {
    const Json* ids = line.find("hf_ids");
    if (ids == nullptr) ids = line.find("ids");
    const std::string& text = line.find("text")->as_string();
    const bool parse_special = line.find("parse_special")->as_bool();
    EXPECT_EQ(tokenizer->encode(text, false, parse_special), ids_of(*ids)) << line.dump();
  }
}

TEST_P(Vocabulary, gives_ids_and_text_of_the_transformers_js_cases) {
  NEEDS_VOCABULARY(tokenizer, GetParam());
  const std::map<std::string, std::string> sections = {
      {"llama-bpe", "Xenova/llama3-tokenizer-new"},
      {"llama-spm", "Xenova/llama-tokenizer"},
      {"gpt-2", "Xenova/gpt2"},
      {"qwen2", "Xenova/Qwen1.5-0.5B-Chat"}};
  const Json all = Json::parse(read_whole_file(
      cases_folder() + "/tokenizer/hf-transformersjs-cases.json", ErrorKind::input));
  const Json* section = all.find(sections.at(GetParam()));
  ASSERT_NE(section, nullptr);
  for (const Json& test : section->as_array()) {
    const auto expected = ids_of(*test.find("ids"));
    const bool begins_with_bos =
        !expected.empty() && tokenizer->bos() == expected.front() && tokenizer->adds_bos();
    const std::string& text = test.find("text")->as_string();
    EXPECT_EQ(tokenizer->encode(text, begins_with_bos, true), expected) << text;
    StreamDecoder decoder;
    std::string decoded;
    for (uint32_t id : expected)
      decoded += decoder.push(tokenizer->token_bytes(id));
    decoded += decoder.finish();
    EXPECT_EQ(decoded, test.find("decoded")->as_string());
  }
}

TEST_P(Vocabulary, gives_the_text_back_byte_for_byte) {
  NEEDS_VOCABULARY(tokenizer, GetParam());
  const bool is_spm = std::string(GetParam()) == "llama-spm";
  for (const Json& line :
       read_lines(cases_folder() + "/tokenizer/extended/" + GetParam() + ".jsonl")) {
    // The space that SentencePiece puts behind a special token is lost by design.
    if (is_spm && line.find("parse_special")->as_bool()) continue;
    const std::string& text = line.find("text")->as_string();
    const std::string back = tokenizer->decode(tokenizer->encode(text, false, false), false);
    const std::string kept = GetParam() == std::string("qwen2") ? normalize_nfc(text) : text;
    EXPECT_EQ(back, is_spm && !text.empty() ? " " + kept : kept);
  }
}

class RealModel : public ::testing::Test {
 protected:
  void SetUp() override {
    NEEDS_CASES("real-models");
    const char* path = std::getenv("NIGHTSWEEP_TEST_MODEL");
    if (path == nullptr) {
      GTEST_SKIP() << "SKIPPED: set NIGHTSWEEP_TEST_MODEL to SmolLM2-135M-Instruct.Q4_1.gguf";
    }
    tokenizer_ = Tokenizer::from_gguf(GgufModel::open(path));
  }

  static std::vector<Json> lines(const std::string& name) {
    return read_lines(cases_folder() + "/real-models/smollm2-135m/" + name);
  }

  // A marker counts as a control token where the template wrote it, not in a message.
  static std::vector<TextSpan> spans_of(const Json& chat) {
    std::vector<TextSpan> spans;
    const std::string& rendered = chat.find("rendered")->as_string();
    size_t begin = 0;
    for (const Json& message : chat.find("messages")->as_array()) {
      const std::string& content = message.find("content")->as_string();
      const size_t at = rendered.find(content, begin);
      spans.push_back({rendered.substr(begin, at - begin), true});
      spans.push_back({content, false});
      begin = at + content.size();
    }
    spans.push_back({rendered.substr(begin), true});
    return spans;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(RealModel, is_described_as_its_file_says) {
  EXPECT_EQ(tokenizer_->description(), "gpt2/smollm");
  EXPECT_EQ(tokenizer_->n_tokens(), 49152U);
  EXPECT_FALSE(tokenizer_->adds_bos());
  EXPECT_EQ(tokenizer_->end_of_generation(), (std::vector<uint32_t>{2, 0}));
}

TEST_F(RealModel, gives_the_ids_of_its_token_cases) {
  for (const char* file : {"tokens.jsonl", "prompts.jsonl"}) {
    for (const Json& line : lines(file)) {
      const std::string& text = line.find("text")->as_string();
      const auto plain = ids_of(*line.find("ids"));
      EXPECT_EQ(tokenizer_->encode(text, true, false), plain) << text;
      const Json* special = line.find("ids_parse_special");
      EXPECT_EQ(tokenizer_->encode(text, true, true), special ? ids_of(*special) : plain) << text;
      if (const Json* decoded = line.find("decoded")) {
        EXPECT_EQ(tokenizer_->decode(plain, false), decoded->as_string());
      }
    }
  }
}

TEST_F(RealModel, keeps_markers_in_messages_ordinary_text) {
  for (const Json& chat : lines("chats.jsonl")) {
    const auto expected = ids_of(*chat.find("ids"));
    if (chat.find("special")->as_string() == "template") {
      EXPECT_EQ(tokenizer_->encode(spans_of(chat), true), expected);
    } else {
      EXPECT_EQ(tokenizer_->encode(chat.find("rendered")->as_string(), true, true), expected);
    }
  }
}

}  // namespace
}  // namespace nightsweep
