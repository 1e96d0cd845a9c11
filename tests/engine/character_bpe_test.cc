// BPE over characters, on a vocabulary invented here.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "engine/tokenizer.h"

namespace nightsweep {
namespace {

using Ids = std::vector<uint32_t>;

std::string refusal_of(TokenData data) {
  try {
    Tokenizer tokenizer(std::move(data));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Gemma 4: characters, U+2581 for the space, byte tokens.
TokenData gemma_data() {
  TokenData data;
  data.source = "tiny.gguf";
  data.model = "gemma4";
  data.texts = {"<pad>", "<eos>", "<bos>",    "a",    "b",      "\u2581", "\u00E9",
                "\n",    "ab",    "\u2581ab", "\n\n", "\n\n\n", "<b>"};
  data.types.assign(data.texts.size(), TokenType::normal);
  data.types[0] = data.types[1] = data.types[2] = TokenType::control;
  data.types[12] = TokenType::user_defined;
  for (unsigned byte = 0; byte < 256; ++byte) {
    data.texts.push_back(format("<0x{:02X}>", byte));
    data.types.push_back(TokenType::byte);
  }
  data.merges = {"a b", "\u2581 ab", "\n \n"};
  data.bos = 2;
  data.eos = 1;
  return data;
}

TEST(CharacterPairTokenizer, merges_characters_and_falls_back_to_bytes) {
  const Tokenizer tokenizer(gemma_data());
  EXPECT_EQ(tokenizer.description(), "gemma4/default");
  EXPECT_EQ(tokenizer.encode("ab ab", true, false), (Ids{2, 8, 9}));  // no space in front
  EXPECT_EQ(tokenizer.encode("a\u00E9 ", false, false), (Ids{3, 6, 5}));
  constexpr uint32_t kFirstByte = 13;
  EXPECT_EQ(tokenizer.encode("\u00DF", false, false), (Ids{kFirstByte + 0xC3, kFirstByte + 0x9F}));
  EXPECT_EQ(tokenizer.encode("\xFF", false, false), (Ids{kFirstByte + 0xFF}));
  EXPECT_EQ(tokenizer.encode("<b>ab<eos>", false, true), (Ids{12, 8, 1}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(" ab\u00DF\n", true, false), true), " ab\u00DF\n");
}

TEST(CharacterPairTokenizer, a_run_of_line_feeds_that_is_a_token_is_that_token) {
  const Tokenizer tokenizer(gemma_data());
  // No merge leads to three.
  EXPECT_EQ(tokenizer.encode("a\n\n\nb", false, false), (Ids{3, 11, 4}));
  EXPECT_EQ(tokenizer.encode("\n\n\n\n", false, false), (Ids{10, 10}));
}

TEST(CharacterPairTokenizer, merges_across_words_and_lines_are_made_where_the_file_has_them) {
  TokenData data = gemma_data();
  data.texts.insert(data.texts.end(), {"b\u2581", "\na"});
  data.types.resize(data.texts.size(), TokenType::normal);
  data.merges.insert(data.merges.begin(), {"b \u2581", "\n a"});
  const auto first = static_cast<uint32_t>(data.texts.size()) - 2;
  EXPECT_EQ(Tokenizer(data).encode("ab ab\na", false, false), (Ids{3, first, 8, first + 1}));
}

TEST(CharacterPairTokenizer, refuses_what_makes_no_sense_for_it) {
  TokenData data = gemma_data();
  data.merges.clear();
  EXPECT_NE(refusal_of(data).find("tokenizer.ggml.merges"), std::string::npos);
  data = gemma_data();
  data.texts[13] = "<0x0>";
  EXPECT_NE(
      refusal_of(data).find("token 13: expected the text of a byte token"), std::string::npos);
  data = gemma_data();
  data.pre = "llama-bpe";
  EXPECT_NE(refusal_of(data).find("expected gemma4"), std::string::npos);
  data = gemma_data();
  data.adds_space_prefix = true;
  EXPECT_NE(refusal_of(data).find("tokenizer.ggml.add_space_prefix"), std::string::npos);
}

}  // namespace
}  // namespace nightsweep
