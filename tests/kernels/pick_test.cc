// Device::pick() against the same operations in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "kernels/oracle.h"
#include "support/test_device.h"

namespace nightsweep {
namespace {

class PickOf : public testing::Test {
 protected:
  void SetUp() override {
    NEEDS_GPU(true);
    device_ = make_host_device(cuda_spec());
  }

  Pick pick(std::vector<float> logits, const PickRow& row) {
    Pick found;
    device_->pick(logits.data(), static_cast<uint32_t>(logits.size()), {&row, 1}, {&found, 1});
    return found;
  }

  std::unique_ptr<Device> device_;
};

constexpr uint32_t kVocab = 5003;

std::vector<float> random_logits(Random& random, float spread) {
  std::vector<float> logits(kVocab);
  for (float& logit : logits)
    logit = spread * random.normal();
  return logits;
}

// Ids that may be drawn, heaviest first, and their weights.
struct Kept {
  std::vector<uint32_t> ids;
  std::vector<double> weights;
};

Kept kept_of(const std::vector<float>& logits, const PickRow& row) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    weights[i] = std::exp((logits[i] - highest) * double{row.inverse_temperature});
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(
      order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  std::erase_if(order, [&](uint32_t id) { return weights[id] < double{row.min_p}; });
  if (row.top_k > 0 && row.top_k < order.size()) order.resize(row.top_k);
  double total = 0;
  for (uint32_t id : order)
    total += weights[id];
  Kept kept;
  double sum = 0;
  for (uint32_t id : order) {
    kept.ids.push_back(id);
    kept.weights.push_back(weights[id]);
    sum += weights[id];
    if (row.top_p < 1 && sum >= row.top_p * total) break;
  }
  return kept;
}

TEST_F(PickOf, cuda_takes_the_highest_and_the_lowest_id_on_a_tie) {
  Random random(41);
  std::vector<float> logits = random_logits(random, 1.0F);
  logits[4000] = logits[77] = logits[5002] = 20.0F;
  EXPECT_EQ(pick(logits, {}).token, 77U);
  EXPECT_EQ(pick({-1.0F}, {}).token, 0U);
  EXPECT_EQ(pick({-2.0F, -1.0F}, {}).token, 1U);
}

TEST_F(PickOf, cuda_names_rows_that_hold_no_answer) {
  Random random(42);
  for (const float temperature : {0.0F, 1.0F}) {
    std::vector<float> logits = random_logits(random, 1.0F);
    logits[3001] = NAN;
    EXPECT_EQ(pick(logits, {.inverse_temperature = temperature}).fault, PickFault::not_a_number);
    // A ban does not hide it.
    const LogitEdit ban{.token = 3001, .is_banned = true};
    EXPECT_EQ(
        pick(logits, {.inverse_temperature = temperature, .edits = {&ban, 1}}).fault,
        PickFault::not_a_number);
    const std::vector<float> infinite(kVocab, -HUGE_VALF);
    EXPECT_EQ(pick(infinite, {.inverse_temperature = temperature}).fault, PickFault::infinite);
    const LogitEdit all[2] = {{.token = 0, .is_banned = true}, {.token = 1, .is_banned = true}};
    EXPECT_EQ(
        pick({1.0F, 2.0F}, {.inverse_temperature = temperature, .edits = all}).fault,
        PickFault::infinite);
  }
}

TEST_F(PickOf, cuda_applies_bias_bans_and_penalties_in_order) {
  const std::vector<float> logits = {1.0F, 2.0F, 3.0F, -1.0F};
  const auto chosen = [&](std::vector<LogitEdit> edits, float penalty = 1.0F) {
    return pick(logits, {.repetition_penalty = penalty, .edits = edits}).token;
  };
  EXPECT_EQ(chosen({{.token = 0, .bias = 2.5F}}), 0U);
  EXPECT_EQ(chosen({{.token = 2, .is_banned = true}}), 1U);
  EXPECT_EQ(chosen({{.token = 2, .is_banned = true, .bias = 100.0F}}), 1U);
  EXPECT_EQ(chosen({{.token = 2, .is_repeated = true}}, 2.0F), 1U);
  EXPECT_EQ(chosen({{.token = 2, .subtracted = 1.5F}}), 1U);
  // Below zero the penalty multiplies: -1 times 0.5 is the higher one.
  const LogitEdit first{.token = 0, .is_repeated = true};
  EXPECT_EQ(pick({-1.0F, -0.9F}, {.repetition_penalty = 0.5F, .edits = {&first, 1}}).token, 0U);
  // (3 + 1) / 2 - 0.5 = 1.5
  EXPECT_EQ(
      chosen({{.token = 2, .is_repeated = true, .bias = 1.0F, .subtracted = 0.5F}}, 2.0F), 1U);
}

// Every filter, on peaked and on flat rows: exactly the tokens that may be drawn are drawn, with
// their probabilities.
TEST_F(PickOf, cuda_draws_what_the_filters_leave_as_often_as_it_weighs) {
  Random random(43);
  const PickRow filters[] = {
      {.inverse_temperature = 1.0F},
      {.inverse_temperature = 1.0F, .top_p = 0.9},
      {.inverse_temperature = 1.0F, .top_k = 40},
      {.inverse_temperature = 1.25F, .min_p = 0.05F},
      {.inverse_temperature = 0.7F, .min_p = 0.001F, .top_p = 0.8, .top_k = 100},
      {.inverse_temperature = 1.0F, .top_p = 0.999, .top_k = 4000},
      {.inverse_temperature = 1.0F, .top_p = 0.0},
  };
  for (const float spread : {0.05F, 2.0F, 8.0F}) {
    for (PickRow row : filters) {
      const std::vector<float> logits = random_logits(random, spread);
      const Kept kept = kept_of(logits, row);
      const std::set<uint32_t> may(kept.ids.begin(), kept.ids.end());
      const double total = std::accumulate(kept.weights.begin(), kept.weights.end(), 0.0);
      // Many draws at once, at even places of the uniform number.
      constexpr uint32_t kDraws = 1000;
      std::vector<PickRow> rows(kDraws, row);
      for (uint32_t i = 0; i < kDraws; ++i)
        rows[i].uniform = (i + 0.5) / kDraws;
      std::vector<Pick> picks(kDraws);
      std::vector<float> copy = logits;
      device_->pick(copy.data(), kVocab, rows, picks);
      std::map<uint32_t, uint32_t> counts;
      uint32_t astray = 0;
      for (const Pick& pick : picks) {
        ASSERT_EQ(pick.fault, PickFault::none);
        ++counts[pick.token];
        astray += may.contains(pick.token) ? 0 : 1;
      }
      // Tokens at the very edge of a filter may fall on the other side by rounding.
      EXPECT_LE(astray, 1U) << spread << ", top_k " << row.top_k << ", top_p " << row.top_p;
      // Even places visit a token as often as its share says, to one at each end of it.
      for (size_t i = 0; i < std::min<size_t>(kept.ids.size(), 50); ++i) {
        const double share = kDraws * kept.weights[i] / total;
        EXPECT_NEAR(counts[kept.ids[i]], share, 2.0) << spread << ", rank " << i;
      }
    }
  }
}

TEST_F(PickOf, cuda_choice_depends_on_its_row_alone) {
  Random random(44);
  constexpr uint32_t kRows = 65;
  std::vector<float> logits;
  std::vector<PickRow> rows(kRows);
  for (uint32_t r = 0; r < kRows; ++r) {
    const std::vector<float> row = random_logits(random, 1.0F + 0.1F * static_cast<float>(r % 5));
    logits.insert(logits.end(), row.begin(), row.end());
    rows[r] = {
        .row = r,
        .inverse_temperature = r % 3 == 0 ? 0.0F : 1.0F,
        .top_p = r % 2 == 0 ? 0.95 : 1.0,
        .top_k = r % 4 == 0 ? 50U : 0U,
        .uniform = random.uniform(0.0F, 1.0F)};
  }
  std::vector<Pick> together(kRows);
  std::vector<float> copy = logits;
  device_->pick(copy.data(), kVocab, rows, together);
  for (uint32_t r = 0; r < kRows; ++r) {
    PickRow row = rows[r];
    row.row = 0;
    EXPECT_EQ(pick(rows_of(logits, r, 1, kVocab), row).token, together[r].token) << r;
  }
}

}  // namespace
}  // namespace nightsweep
