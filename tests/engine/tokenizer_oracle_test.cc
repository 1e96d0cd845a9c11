// Random texts against Hugging Face's `tokenizers` (PyPI). NIGHTSWEEP_ORACLE_PYTHON names a Python
// that has it; else python3 is tried.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "base/format.h"
#include "base/json.h"
#include "engine/normalize.h"
#include "engine/pre_tokenizer.h"
#include "engine/tokenizer.h"
#include "support/output_of.h"

namespace nightsweep {
namespace {

constexpr int kTexts = 3000;  // of each rule and vocabulary
constexpr int kTextSeed = 7;

template <typename T>
std::vector<T> numbers_of(const Json& array) {
  std::vector<T> numbers;
  for (const Json& number : array.as_array())
    numbers.push_back(static_cast<T>(number.as_integer()));
  return numbers;
}

std::vector<std::string> strings_of(const Json& array) {
  std::vector<std::string> strings;
  for (const Json& string : array.as_array())
    strings.push_back(string.as_string());
  return strings;
}

void check_pieces(const Json& test) {
  static std::map<std::string, std::unique_ptr<PreTokenizer>> made;
  const std::string& name = test.find("rule")->as_string();
  const PreTokenizerRule* rule = find_pre_tokenizer_rule(name);
  ASSERT_NE(rule, nullptr) << name;
  std::unique_ptr<PreTokenizer>& pre_tokenizer = made[name];
  if (!pre_tokenizer) pre_tokenizer = std::make_unique<PreTokenizer>(*rule);
  const std::string& text = test.find("text")->as_string();
  const std::string normal = rule->normalizes_nfc ? normalize_nfc(text) : text;
  ASSERT_EQ(normal, test.find("normal")->as_string()) << test.dump();
  std::vector<std::string_view> pieces;
  pre_tokenizer->split(normal, pieces);
  std::vector<size_t> lengths;
  for (std::string_view piece : pieces)
    lengths.push_back(piece.size());
  EXPECT_EQ(lengths, numbers_of<size_t>(*test.find("lengths"))) << test.dump();
}

void check_ids(const Json& test) {
  TokenData data;
  data.source = "oracle";
  data.model = test.find("model")->as_string();
  data.pre = data.model == "gpt2" ? "gpt-2" : data.model;
  data.texts = strings_of(*test.find("texts"));
  for (int type : numbers_of<int>(*test.find("types")))
    data.types.push_back(static_cast<TokenType>(type));
  data.merges = strings_of(*test.find("merges"));
  data.strips_left = numbers_of<uint32_t>(*test.find("left"));
  data.strips_right = numbers_of<uint32_t>(*test.find("right"));
  data.eos = 0;
  data.adds_bos = false;
  const Tokenizer tokenizer(std::move(data));
  EXPECT_EQ(
      tokenizer.encode(test.find("text")->as_string(), false, true),
      numbers_of<uint32_t>(*test.find("ids")))
      << test.dump();
}

TEST(TokenizerOracle, cuts_and_encodes_random_texts_as_hugging_face_does) {
  const char* chosen = std::getenv("NIGHTSWEEP_ORACLE_PYTHON");
  const std::string python = chosen != nullptr ? chosen : "python3";
  if (output_of(python + " -c 'import tokenizers; print(1)' 2>/dev/null") != "1\n") {
    GTEST_SKIP() << "SKIPPED: no Python with tokenizers (NIGHTSWEEP_ORACLE_PYTHON names one)";
  }
  std::istringstream lines(output_of(
      format("timeout 300 {} tests/engine/tokenizer_oracle.py {} {}", python, kTexts, kTextSeed)));
  std::map<std::string, int> n_cases;
  for (std::string line; std::getline(lines, line);) {
    const Json test = Json::parse(line);
    const Json* rule = test.find("rule");
    ++n_cases[rule != nullptr ? rule->as_string() : test.find("model")->as_string() + " ids"];
    rule != nullptr ? check_pieces(test) : check_ids(test);
  }
  EXPECT_EQ(n_cases.size(), 20U);
  for (const auto& [name, n] : n_cases)
    EXPECT_EQ(n, kTexts) << name;
}

}  // namespace
}  // namespace nightsweep
