#include "engine/token_picks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/fake_device.h"

namespace nightsweep {
namespace {

// Keeps what it was asked for.
class AskedDevice : public FakeDevice {
 public:
  struct Asked {
    PickRow row;
    std::vector<LogitEdit> edits;
  };

  void pick(
      float* /*logits*/,
      uint32_t n_vocab,
      std::span<const PickRow> rows,
      std::span<Pick> picks) override {
    n_vocab_ = n_vocab;
    for (size_t i = 0; i < rows.size(); ++i) {
      asked_.push_back({rows[i], {rows[i].edits.begin(), rows[i].edits.end()}});
      picks[i] = {.token = static_cast<uint32_t>(100 + i), .fault = fault_};
    }
  }

  std::vector<Asked> asked_;
  uint32_t n_vocab_ = 0;
  PickFault fault_ = PickFault::none;
};

const LogitEdit& edit_of(const std::vector<LogitEdit>& edits, uint32_t token) {
  const auto found = std::ranges::find(edits, token, &LogitEdit::token);
  EXPECT_NE(found, edits.end()) << token;
  return *found;
}

TEST(TokenPicks, asks_for_each_row_and_gives_its_token) {
  AskedDevice device;
  TokenPicks picks(50);
  const std::vector<uint32_t> answer = {1, 2};
  picks.add(3, {.temperature = 0.0, .seed = 5}, {.answer = answer});
  picks.add(
      8, {.temperature = 0.5, .top_p = 0.9, .min_p = 0.1, .top_k = -1, .seed = 5, .choice = 2},
      {.answer = answer});
  float logits = 0;
  picks.choose(device, &logits);
  EXPECT_FALSE(picks.has(0));
  EXPECT_FALSE(picks.has(7));
  EXPECT_EQ(picks.token(3), 100U);
  EXPECT_EQ(picks.token(8), 101U);
  ASSERT_EQ(device.asked_.size(), 2U);
  EXPECT_EQ(device.n_vocab_, 50U);
  const PickRow& greedy = device.asked_[0].row;
  EXPECT_EQ(greedy.row, 3U);
  EXPECT_EQ(greedy.inverse_temperature, 0.0F);
  EXPECT_TRUE(device.asked_[0].edits.empty());
  const PickRow& drawn = device.asked_[1].row;
  EXPECT_EQ(drawn.inverse_temperature, 2.0F);
  EXPECT_EQ(drawn.top_p, 0.9);
  EXPECT_EQ(drawn.min_p, 0.1F);
  EXPECT_EQ(drawn.top_k, 0U) << "-1 is off";
  EXPECT_EQ(drawn.uniform, uniform_draw(5, 2, 2)) << "the number that Sampler draws";
  picks.clear();
  EXPECT_FALSE(picks.has(3));
}

TEST(TokenPicks, each_token_has_one_edit_whatever_asks_for_it) {
  AskedDevice device;
  TokenPicks picks(50);
  const std::vector<uint32_t> prompt = {7, 7, 9};
  const std::vector<uint32_t> answer = {9, 11, 9};
  const std::vector<uint32_t> banned = {2, 7};
  for (uint32_t row : {0U, 1U}) {  // the second finds nothing left of the first
    picks.add(
        row,
        {.temperature = 0.0,
         .repetition_penalty = 1.5,
         .frequency_penalty = 0.25,
         .presence_penalty = 1.0,
         .logit_bias = {{9, 2.0F}, {3, -1.0F}}},
        {.prompt = prompt, .answer = answer, .banned = banned});
  }
  float logits = 0;
  picks.choose(device, &logits);
  for (const AskedDevice::Asked& asked : device.asked_) {
    EXPECT_EQ(asked.row.repetition_penalty, 1.5F);
    ASSERT_EQ(asked.edits.size(), 5U);  // 9, 3, 2, 7, 11
    EXPECT_EQ(edit_of(asked.edits, 9).bias, 2.0F);
    EXPECT_TRUE(edit_of(asked.edits, 9).is_repeated);
    EXPECT_EQ(edit_of(asked.edits, 9).subtracted, 1.5F);  // 2 x 0.25 + 1
    EXPECT_EQ(edit_of(asked.edits, 11).subtracted, 1.25F);
    EXPECT_EQ(edit_of(asked.edits, 3).bias, -1.0F);
    EXPECT_FALSE(edit_of(asked.edits, 3).is_repeated);
    EXPECT_TRUE(edit_of(asked.edits, 2).is_banned);
    EXPECT_TRUE(edit_of(asked.edits, 7).is_banned);
    EXPECT_EQ(edit_of(asked.edits, 7).subtracted, 0.0F) << "of the prompt, not of the answer";
  }
}

TEST(TokenPicks, what_a_device_does_not_have_is_left_to_the_sampler) {
  EXPECT_TRUE(TokenPicks::covers({.top_p = 0.5, .min_p = 0.1, .top_k = 4}));
  EXPECT_FALSE(TokenPicks::covers({.typical_p = 0.9}));
  EXPECT_FALSE(TokenPicks::covers({.allowed = {4, 5}}));
}

TEST(TokenPicks, a_row_without_an_answer_is_told_as_by_the_sampler) {
  for (PickFault fault : {PickFault::not_a_number, PickFault::infinite}) {
    AskedDevice device;
    device.fault_ = fault;
    TokenPicks picks(50);
    picks.add(0, {}, {});
    float logits = 0;
    picks.choose(device, &logits);
    const float row = fault == PickFault::infinite ? -HUGE_VALF : NAN;
    try {
      Sampler(1).sample({&row, 1}, {}, {});
      FAIL() << "the sampler took it";
    } catch (const LogitsError& expected) {
      try {
        picks.token(0);
        FAIL() << "it was taken";
      } catch (const LogitsError& found) {
        EXPECT_STREQ(found.what(), expected.what());
      }
    }
  }
}

}  // namespace
}  // namespace nightsweep
