#include "engine/answer.h"

#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace nightsweep {
namespace {

// The tiny vocabulary: 2 is </s>, 3 + b is byte b.
class AnswerTextOfBytes : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.path("tiny.gguf");
    write_tiny_llama(path_, {});
    gguf_ = open_gguf(path_);
    tokenizer_ = Tokenizer::from_gguf(*gguf_);
  }

  struct Outcome {
    std::string text;
    FinishReason reason = FinishReason::none;
    size_t n_tokens = 0;
    size_t n_kept = 0;
  };
  // Pushes the bytes one token each, then `end`, until the answer ends.
  Outcome feed(std::string_view bytes, StopRules rules, std::vector<uint32_t> end = {}) {
    AnswerText answer(*tokenizer_, std::move(rules));
    std::vector<uint32_t> tokens;
    for (char byte : bytes)
      tokens.push_back(3 + static_cast<uint8_t>(byte));
    tokens.insert(tokens.end(), end.begin(), end.end());
    for (uint32_t token : tokens) {
      if (answer.push(token) != FinishReason::none) break;
    }
    Outcome outcome{
        .reason = answer.reason(),
        .n_tokens = answer.tokens().size(),
        .n_kept = answer.n_kept_tokens()};
    outcome.text = answer.take_text();
    return outcome;
  }

  TemporaryFolder folder_;
  std::string path_;
  std::shared_ptr<const GgufModel> gguf_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(AnswerTextOfBytes, the_end_token_ends_and_leaves_no_text) {
  Outcome outcome = feed("hello", {.max_tokens = 100}, {2});
  EXPECT_EQ(outcome.text, "hello");
  EXPECT_EQ(outcome.reason, FinishReason::stop);
  EXPECT_EQ(outcome.n_tokens, 6U);
  EXPECT_EQ(outcome.n_kept, 5U);
}

TEST_F(AnswerTextOfBytes, ignore_eos_goes_on_to_the_limit) {
  Outcome outcome = feed("ab", {.max_tokens = 4, .ignore_eos = true}, {2, 3 + 'c'});
  EXPECT_EQ(outcome.text, "abc");
  EXPECT_EQ(outcome.reason, FinishReason::length);
}

TEST_F(AnswerTextOfBytes, a_stop_string_is_found_across_token_borders_and_cut) {
  Outcome outcome = feed("one END two", {.max_tokens = 100, .strings = {"END"}});
  EXPECT_EQ(outcome.text, "one ");
  EXPECT_EQ(outcome.reason, FinishReason::stop);
  EXPECT_EQ(outcome.n_tokens, 7U);
}

TEST_F(AnswerTextOfBytes, the_earliest_stop_string_wins) {
  EXPECT_EQ(feed("xabcd", {.max_tokens = 100, .strings = {"c", "abc"}}).text, "x");
  EXPECT_EQ(feed("a stop", {.max_tokens = 100, .strings = {"stop", "sto"}}).text, "a ");
}

TEST_F(AnswerTextOfBytes, a_stop_string_may_be_kept) {
  StopRules rules{.max_tokens = 100, .strings = {"END"}, .include_stop_in_output = true};
  EXPECT_EQ(feed("one END two", rules).text, "one END");
}

TEST_F(AnswerTextOfBytes, nothing_stops_before_min_tokens) {
  StopRules rules{.max_tokens = 100, .min_tokens = 5, .strings = {"b"}};
  AnswerText answer(*tokenizer_, rules);
  EXPECT_EQ(answer.banned(), std::vector<uint32_t>{2});
  for (char byte : {'a', 'b', 'c', 'd', 'e'}) {
    EXPECT_EQ(answer.push(3 + static_cast<uint8_t>(byte)), FinishReason::none);
  }
  EXPECT_TRUE(answer.banned().empty());
  EXPECT_EQ(answer.push(3 + 'b'), FinishReason::stop);
}

TEST_F(AnswerTextOfBytes, characters_are_never_split) {
  EXPECT_EQ(feed("\xE2\x82\xAC", {.max_tokens = 3}).text, "\xE2\x82\xAC");
  // Two bytes of three at the limit: one replacement character, as Python decodes it.
  EXPECT_EQ(feed("x\xE2\x82\xAC", {.max_tokens = 3}).text, "x\xEF\xBF\xBD");
  // A stop string cannot match inside a half character.
  EXPECT_EQ(feed("\xC3\xA9z", {.max_tokens = 9, .strings = {"z"}}).text, "\xC3\xA9");
}

TEST_F(AnswerTextOfBytes, stop_token_ids_end_like_the_end_token) {
  Outcome outcome = feed("abz", {.max_tokens = 100, .token_ids = {3 + 'z'}});
  EXPECT_EQ(outcome.text, "ab");
  EXPECT_EQ(outcome.reason, FinishReason::stop);
  EXPECT_EQ(outcome.n_kept, 2U);
}

TEST_F(AnswerTextOfBytes, special_tokens_are_skipped_or_written) {
  StopRules rules{.max_tokens = 3, .ignore_eos = true, .skip_special_tokens = false};
  EXPECT_EQ(feed("a", rules, {1, 2}).text, "a<s></s>");
}

}  // namespace
}  // namespace nightsweep
