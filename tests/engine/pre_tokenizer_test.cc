#include "engine/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "engine/normalize.h"
#include "engine/utf8.h"

namespace nightsweep {
namespace {

// The pieces with | between.
std::string split(std::string_view name, std::string_view text) {
  const PreTokenizer pre_tokenizer(*find_pre_tokenizer_rule(name));
  std::vector<std::string_view> pieces;
  pre_tokenizer.split(text, pieces);
  std::string joined;
  for (std::string_view piece : pieces) {
    if (!joined.empty()) joined += '|';
    joined += piece;
  }
  return joined;
}

const char* const kAllRules[] = {
    "llama-bpe", "llama3",      "llama-v3",     "falcon3",          "pixtral",
    "glm4",      "chatglm-bpe", "qwen2",        "deepseek-r1-qwen", "qwen35",
    "gpt-2",     "smollm",      "starcoder",    "refact",           "command-r",
    "tekken",    "gpt-4o",      "o200k",        "llama4",           "deepseek-v3",
    "dbrx",      "smaug-bpe",   "phi-2",        "gpt-neox",         "mpt",
    "olmo",      "falcon",      "deepseek-llm", "deepseek-coder"};

TEST(PreTokenizer, knows_its_names_and_no_others) {
  const std::string list = known_pre_tokenizer_names();
  for (const char* name : kAllRules) {
    EXPECT_NE(find_pre_tokenizer_rule(name), nullptr) << name;
    EXPECT_NE(list.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(find_pre_tokenizer_rule("gpt2"), nullptr);
  EXPECT_EQ(find_pre_tokenizer_rule(""), nullptr);
}

TEST(PreTokenizer, llama3_takes_digits_by_three_and_one_symbol_before_a_word) {
  EXPECT_EQ(
      split("llama-bpe", "I'LL pay $12345 (now)!\n\n  ok  "),
      "I|'LL| pay| $|123|45| (|now|)!\n\n| | ok|  ");
}

TEST(PreTokenizer, qwen2_takes_each_digit_alone) {
  EXPECT_EQ(split("qwen2", "in 2024"), "in| |2|0|2|4");
}

TEST(PreTokenizer, qwen35_takes_marks_for_letters) {
  EXPECT_EQ(split("qwen35", "a\u0301b"), "a\u0301b");
  EXPECT_EQ(split("qwen2", "a\u0301b"), "a|\u0301b");
}

TEST(PreTokenizer, gpt2_knows_small_contractions_only_and_glues_spaces) {
  EXPECT_EQ(split("gpt-2", "it's IT'S 123  x"), "it|'s| IT|'|S| 123| | x");
}

TEST(PreTokenizer, smollm_cuts_digits_first) {
  EXPECT_EQ(split("smollm", "a 12b  3"), "a| |1|2|b|  |3");
}

TEST(PreTokenizer, tekken_cuts_where_case_rises) {
  EXPECT_EQ(
      split("tekken", "camelCase HTTPServer it's//\n1"), "camel|Case| HTTPServer| it|'s|//\n|1");
}

TEST(PreTokenizer, gpt4o_glues_contractions_to_the_word) {
  EXPECT_EQ(split("gpt-4o", "camelCase it's 1234"), "camel|Case| it's| |123|4");
}

TEST(PreTokenizer, deepseek_v3_takes_chinese_and_kana_apart) {
  EXPECT_EQ(
      split("deepseek-v3", "a\u4E2D\u6587\u3042!foo 12345"), "a|\u4E2D\u6587\u3042|!foo| |123|45");
}

TEST(PreTokenizer, deepseek_llm_takes_letters_punctuation_and_cjk_apart) {
  EXPECT_EQ(
      split("deepseek-llm", "Hi, it's 12 \u4E2D\u6587!\n\n  x  "),
      "Hi|,| it|'|s| |1|2| |\u4E2D\u6587|!|\n|\n| | x|  ");
}

TEST(PreTokenizer, deepseek_coder_takes_any_letters_and_any_punctuation) {
  EXPECT_EQ(
      split("deepseek-coder", "Hi, \u05D0\u05D1 a+b\u3002 12\r\n"),
      "Hi|,| \u05D0\u05D1| a|+|b|\u3002| |1|2|\r|\n");
}

TEST(PreTokenizer, falcon_cuts_punctuation_first_and_digits_of_bytes_last) {
  EXPECT_EQ(
      split("falcon", "a$b ?! it's 12345 x2\n\n y"), "a|$|b| |?!| it|'|s| |123|45| x|2|\n\n| y");
  // The second byte of U+00B2 is written as a character that is a number.
  EXPECT_EQ(split("falcon", "\u00B2"), "\xC2|\xB2");
}

TEST(PreTokenizer, architectures_with_a_family_of_their_own_name_its_rule) {
  for (const char* name :
       {"gptneox", "mpt", "falcon", "starcoder", "starcoder2", "refact", "command-r"}) {
    EXPECT_NE(find_pre_tokenizer_rule(pre_tokenizer_of_architecture(name)), nullptr) << name;
  }
  EXPECT_EQ(pre_tokenizer_of_architecture("llama"), "");
}

TEST(PreTokenizer, white_space_is_that_of_unicode) {
  EXPECT_EQ(split("gpt-2", "a\u0085\u2003\u3000b"), "a|\u0085\u2003|\u3000|b");
  EXPECT_EQ(split("gpt-2", "a\u180E\u200Bb"), "a|\u180E\u200B|b");  // neither of them is
}

TEST(PreTokenizer, bytes_that_are_not_utf8_stand_alone) {
  EXPECT_EQ(split("gpt-2", "ab\xFF\xFE c\xE2\x82"), "ab|\xFF|\xFE| c|\xE2\x82");
}

TEST(PreTokenizer, pieces_joined_are_the_text_whatever_it_is) {
  std::vector<std::string> hostile = {std::string(100'000, ' '),   std::string(100'000, ' ') + "x",
                                      std::string(100'000, '\n'),  std::string(100'000, 'A'),
                                      std::string(100'000, '!'),   std::string(100'000, '7'),
                                      std::string(100'000, '\xFF')};
  for (const char* part :
       {" \n", "A\u0301", "\u01C5", "\u4E2D", "'s'S'", "\u00A0 ", "a1 ", "\xE2\x82 "}) {
    std::string text;
    while (text.size() < 100'000)
      text += part;
    hostile.push_back(text);
  }
  for (const char* name : kAllRules) {
    const PreTokenizer pre_tokenizer(*find_pre_tokenizer_rule(name));
    for (const std::string& text : hostile) {
      std::vector<std::string_view> pieces;
      pre_tokenizer.split(text, pieces);
      const char* at = text.data();
      for (std::string_view piece : pieces) {
        ASSERT_EQ(piece.data(), at) << name;
        ASSERT_FALSE(piece.empty());
        at += piece.size();
      }
      EXPECT_EQ(at, text.data() + text.size()) << name;
    }
  }
}

TEST(Normalize, composes_orders_and_keeps_what_is_not_text) {
  EXPECT_EQ(normalize_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(normalize_nfc("a\u0301\u0323"), "\u1EA1\u0301");               // dot below goes first
  EXPECT_EQ(normalize_nfc("\u1100\u1161\u11A8"), "\uAC01");                // Hangul
  EXPECT_EQ(normalize_nfc("\uC5B4\u11A7\u11A7x"), "\uC5B4\u11A7\u11A7x");  // no consonant
  EXPECT_EQ(normalize_nfc("\u212B\u2126"), "\u00C5\u03A9");                // singletons
  EXPECT_EQ(normalize_nfc("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(normalize_nfc("a\xFF\u0301\xE2"), "a\xFF\u0301\xE2");
  EXPECT_EQ(normalize_nfc(""), "");
}

TEST(Normalize, a_long_run_of_marks_takes_no_quadratic_time) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i)
    text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string normal = normalize_nfc(text);
  EXPECT_TRUE(normal.starts_with("\u1EA1\u0323\u0323"));
  EXPECT_TRUE(normal.ends_with("\u0301\u0301"));
}

TEST(Normalize, what_is_surely_composed_stays) {
  EXPECT_TRUE(is_surely_nfc("plain text, \u00E9\u00FC\u0142"));
  EXPECT_FALSE(is_surely_nfc("e\u0301"));
  EXPECT_FALSE(is_surely_nfc("\u212B"));
}

TEST(Utf8, a_unit_is_a_character_or_a_maximal_part_of_one) {
  const auto unit = [](std::string_view text) {
    const Utf8Unit first = first_utf8_unit(text);
    return std::pair(first.n_bytes, first.kind);
  };
  EXPECT_EQ(unit("a"), std::pair(1U, Utf8Kind::character));
  EXPECT_EQ(unit("\xF0\x9F\x98\x80"), std::pair(4U, Utf8Kind::character));
  EXPECT_EQ(unit("\xF0\x9F\x98"), std::pair(3U, Utf8Kind::truncated));
  EXPECT_EQ(unit("\xF0\x9F\x98z"), std::pair(3U, Utf8Kind::invalid));
  EXPECT_EQ(unit("\xE0\x80"), std::pair(1U, Utf8Kind::invalid));
  EXPECT_EQ(unit("\x80"), std::pair(1U, Utf8Kind::invalid));
  EXPECT_EQ(valid_utf8_prefix("abcdefghij\u00E9k\xFFz"), 13U);
  EXPECT_TRUE(is_ascii("0123456789abcdef!"));
  EXPECT_FALSE(is_ascii("0123456789abcde\x80!"));
}

}  // namespace
}  // namespace nightsweep
