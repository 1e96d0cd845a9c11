#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace nightsweep {
namespace {

std::vector<float> random_logits(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> logits(n);
  for (float& logit : logits)
    logit = normal(random);
  return logits;
}

uint32_t pick(
    const std::vector<float>& logits,
    const SamplingParams& params,
    const SampleContext& context = {}) {
  Sampler sampler(static_cast<uint32_t>(logits.size()));
  return sampler.sample(logits, params, context).token;
}

// Frequencies of 20,000 draws at different positions.
std::map<uint32_t, double> frequencies(const std::vector<float>& logits, SamplingParams params) {
  constexpr int kDraws = 20000;
  Sampler sampler(static_cast<uint32_t>(logits.size()));
  std::map<uint32_t, double> seen;
  for (int i = 0; i < kDraws; ++i) {
    params.seed = i;
    seen[sampler.sample(logits, params, {}).token] += 1.0 / kDraws;
  }
  return seen;
}

TEST(Sampler, greedy_takes_the_lowest_id_on_a_tie) {
  EXPECT_EQ(pick({1, 5, 3, 5}, {.temperature = 0}), 1U);
}

TEST(Sampler, draws_follow_the_softmax) {
  std::vector<float> logits = {0.0F, 1.0F, 2.0F, -1.0F};
  double total = 0;
  for (float logit : logits)
    total += std::exp(logit / 0.7);
  auto seen = frequencies(logits, {.temperature = 0.7});
  for (uint32_t id = 0; id < logits.size(); ++id) {
    double p = std::exp(logits[id] / 0.7) / total;
    // Four standard deviations of a binomial over 20,000 draws.
    EXPECT_NEAR(seen[id], p, 4 * std::sqrt(p * (1 - p) / 20000)) << id;
  }
}

TEST(Sampler, a_draw_depends_on_seed_choice_and_position_alone) {
  EXPECT_EQ(uniform_draw(7, 0, 3), uniform_draw(7, 0, 3));
  std::set<double> seen;
  for (int64_t seed : {0, 1, -1, 1 << 20}) {
    for (uint32_t choice : {0U, 1U, 127U}) {
      for (uint64_t position : {0ULL, 1ULL, 1ULL << 33}) {
        double u = uniform_draw(seed, choice, position);
        EXPECT_GE(u, 0.0);
        EXPECT_LT(u, 1.0);
        EXPECT_TRUE(seen.insert(u).second);
      }
    }
  }
}

// Known answer of Philox 4x32-10 for key 0 and counter 0 (Random123's kat_vectors: 6627e8d5
// e169c58d ...): the numbers may never change, or resumed answers would.
TEST(Sampler, random_numbers_are_those_of_philox) {
  uint64_t bits = (0x6627e8d5ULL << 32 | 0xe169c58dULL) >> 11;
  EXPECT_EQ(uniform_draw(0, 0, 0), static_cast<double>(bits) * 0x1p-53);
}

TEST(Sampler, top_k_keeps_the_lower_id_on_a_tie) {
  auto seen = frequencies({1, 2, 2, 2}, {.top_k = 2});
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_TRUE(seen.contains(1) && seen.contains(2));
}

TEST(Sampler, top_p_includes_the_token_that_crosses) {
  // Probabilities 0.5, 0.3, 0.2.
  std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  EXPECT_EQ(frequencies(logits, {.top_p = 0.4}).size(), 1U);
  EXPECT_EQ(frequencies(logits, {.top_p = 0.6}).size(), 2U);
  EXPECT_EQ(frequencies(logits, {.top_p = 0.9}).size(), 3U);
}

TEST(Sampler, top_p_agrees_with_a_full_sort_on_a_large_vocabulary) {
  std::vector<float> logits = random_logits(50000, 3);
  std::vector<uint32_t> order(logits.size());
  for (uint32_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::sort(
      order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  double total = 0;
  for (float logit : logits)
    total += std::exp(static_cast<double>(logit));
  std::set<uint32_t> nucleus;
  double sum = 0;
  for (uint32_t id : order) {
    nucleus.insert(id);
    sum += std::exp(static_cast<double>(logits[id]));
    if (sum >= 0.9 * total) break;
  }
  ASSERT_GT(nucleus.size(), 600U);  // several rounds of the partial sort
  Sampler sampler(50000);
  for (int64_t seed = 0; seed < 300; ++seed) {
    EXPECT_TRUE(nucleus.contains(sampler.sample(logits, {.top_p = 0.9, .seed = seed}, {}).token));
  }
}

TEST(Sampler, min_p_is_relative_to_the_best_token) {
  std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.04F)};
  EXPECT_EQ(frequencies(logits, {.min_p = 0.1}).size(), 2U);
}

TEST(Sampler, filters_come_after_the_temperature) {
  // At temperature 4 the second token has more than half of the best one's probability.
  std::vector<float> logits = {2.0F, 0.0F};
  EXPECT_EQ(frequencies(logits, {.temperature = 1, .min_p = 0.5}).size(), 1U);
  EXPECT_EQ(frequencies(logits, {.temperature = 4, .min_p = 0.5}).size(), 2U);
}

TEST(Sampler, repetition_counts_prompt_and_answer_once_a_token) {
  std::vector<uint32_t> prompt = {0, 0, 0};
  std::vector<uint32_t> answer = {1};
  SampleContext context{.prompt = prompt, .answer = answer, .banned = {}};
  // 4 / 1.5 = 2.67 and 3.9 / 1.5 = 2.6 fall below 3; once more would not matter.
  EXPECT_EQ(pick({4.0F, 3.9F, 3.0F}, {.temperature = 0, .repetition_penalty = 1.5}, context), 2U);
  // Negative logits move away from zero.
  EXPECT_EQ(
      pick({-1.0F, -9.0F, -1.4F}, {.temperature = 0, .repetition_penalty = 1.5}, context), 2U);
  // 4 / 1.2 stays above 3 only if divided once: three times would give 2.3.
  EXPECT_EQ(pick({4.0F, 0.0F, 3.0F}, {.temperature = 0, .repetition_penalty = 1.2}, context), 0U);
}

TEST(Sampler, frequency_and_presence_count_the_answer_only) {
  std::vector<uint32_t> prompt = {0, 0, 0, 0};
  std::vector<uint32_t> answer = {1, 1};
  SampleContext context{.prompt = prompt, .answer = answer, .banned = {}};
  EXPECT_EQ(pick({3.0F, 4.0F}, {.temperature = 0, .frequency_penalty = 0.4}, context), 1U);
  EXPECT_EQ(pick({3.0F, 4.0F}, {.temperature = 0, .frequency_penalty = 0.6}, context), 0U);
  EXPECT_EQ(pick({3.0F, 4.0F}, {.temperature = 0, .presence_penalty = 0.9}, context), 1U);
  EXPECT_EQ(pick({3.0F, 4.0F}, {.temperature = 0, .presence_penalty = 1.1}, context), 0U);
}

TEST(Sampler, bias_and_bans_decide) {
  EXPECT_EQ(pick({3.0F, 4.0F}, {.temperature = 0, .logit_bias = {{0, 2.0F}}}), 0U);
  std::vector<uint32_t> banned = {1};
  SampleContext context{.prompt = {}, .answer = {}, .banned = banned};
  for (int64_t seed = 0; seed < 200; ++seed) {
    EXPECT_EQ(pick({0.0F, 20.0F}, {.temperature = 2, .seed = seed}, context), 0U);
  }
}

TEST(Sampler, logprobs_are_of_the_raw_logits) {
  std::vector<float> logits = random_logits(1000, 5);
  Sampler sampler(1000);
  SampleContext context{
      .prompt = {}, .answer = {}, .banned = {}, .wants_logprob = true, .n_top_logprobs = 5};
  Sample sample = sampler.sample(logits, {.temperature = 0, .logit_bias = {{17, 100.0F}}}, context);
  EXPECT_EQ(sample.token, 17U);
  double total = 0;
  for (float logit : logits)
    total += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(sample.logprob, logits[17] - std::log(total), 2e-6);
  ASSERT_EQ(sample.top.size(), 5U);
  for (size_t i = 1; i < 5; ++i)
    EXPECT_GE(sample.top[i - 1].logprob, sample.top[i].logprob);
  EXPECT_NEAR(
      sample.top[0].logprob, *std::max_element(logits.begin(), logits.end()) - std::log(total),
      2e-6);
}

TEST(Sampler, broken_logits_are_an_error_and_not_token_0) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(pick({1.0F, nan, 2.0F}, {.temperature = 0}), LogitsError);
  EXPECT_THROW(pick({-infinity, -infinity}, {}), LogitsError);
  EXPECT_THROW(pick({1.0F, infinity}, {}), LogitsError);
  std::vector<uint32_t> banned = {0, 1};
  EXPECT_THROW(pick({1, 2}, {}, {.prompt = {}, .answer = {}, .banned = banned}), LogitsError);
}

TEST(Sampler, scratch_of_one_call_does_not_leak_into_the_next) {
  std::vector<float> logits = random_logits(100, 9);
  Sampler sampler(100);
  std::vector<uint32_t> answer = {3, 3, 4};
  SampleContext context{.prompt = answer, .answer = answer, .banned = {}};
  SamplingParams penalties{
      .temperature = 0, .repetition_penalty = 2, .frequency_penalty = 1, .presence_penalty = 1};
  uint32_t first = sampler.sample(logits, penalties, context).token;
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(sampler.sample(logits, penalties, context).token, first);
}

// The steps of the order one by one, by the letter and in double: probabilities by id.
std::vector<double> reference_probabilities(
    const std::vector<float>& logits,
    const SamplingParams& params,
    const SampleContext& context) {
  const size_t n = logits.size();
  const double never = -std::numeric_limits<double>::infinity();
  std::vector<double> work(logits.begin(), logits.end());
  const auto contains = [](std::span<const uint32_t> ids, size_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  for (size_t id = 0; id < n; ++id) {
    if (!params.allowed.empty() && !contains(params.allowed, id)) work[id] = never;
    for (auto [token, bias] : params.logit_bias)
      work[id] += token == id ? static_cast<double>(bias) : 0.0;
    if (contains(context.banned, id)) work[id] = never;
    if (contains(context.prompt, id) || contains(context.answer, id)) {
      work[id] = work[id] > 0 ? work[id] / params.repetition_penalty
                              : work[id] * params.repetition_penalty;
    }
    const auto count = std::count(context.answer.begin(), context.answer.end(), id);
    work[id] -= static_cast<double>(count) * params.frequency_penalty;
    if (count > 0) work[id] -= params.presence_penalty;
  }
  const double highest = *std::max_element(work.begin(), work.end());
  std::vector<double> p(n);
  for (size_t id = 0; id < n; ++id)
    p[id] = std::exp((work[id] - highest) / params.temperature);
  const auto normalize = [&] {
    double total = 0;
    for (double value : p)
      total += value;
    for (double& value : p)
      value /= total;
  };
  // Keeps ids in the order of `key`, lower id first, until `enough` says so.
  const auto keep = [&](const std::vector<double>& key, auto enough) {
    std::vector<size_t> order;
    for (size_t id = 0; id < n; ++id) {
      if (p[id] > 0) order.push_back(id);
    }
    std::stable_sort(
        order.begin(), order.end(), [&](size_t a, size_t b) { return key[a] < key[b]; });
    std::vector<double> kept(n);
    double sum = 0;
    size_t n_kept = 0;
    for (size_t id : order) {
      kept[id] = p[id];
      sum += p[id];
      if (enough(++n_kept, sum)) break;
    }
    p = kept;
    normalize();
  };
  const auto negative = [&] {
    std::vector<double> key;
    for (double value : p)
      key.push_back(-value);
    return key;
  };
  normalize();
  const double best = *std::max_element(p.begin(), p.end());
  for (double& value : p) {
    if (value < params.min_p * best) value = 0;
  }
  normalize();
  if (params.top_k > 0) {
    keep(negative(), [&](size_t n_kept, double) {
      return n_kept == static_cast<size_t>(params.top_k);
    });
  }
  if (params.typical_p < 1) {
    double entropy = 0;
    for (double value : p)
      entropy -= value > 0 ? value * std::log(value) : 0;
    std::vector<double> key;
    for (double value : p)
      key.push_back(std::abs(-std::log(value) - entropy));
    keep(key, [&](size_t, double sum) { return sum >= params.typical_p; });
  }
  if (params.top_p < 1) {
    keep(negative(), [&](size_t, double sum) { return sum >= params.top_p; });
  }
  return p;
}

struct SamplingCase {
  const char* name;
  SamplingParams params;
};

const std::vector<uint32_t> kPromptSoFar = {0, 0, 5, 7};
const std::vector<uint32_t> kAnswerSoFar = {1, 1, 1, 5, 9};

std::vector<SamplingCase> sampling_cases() {
  return {
      {"plain", {}},
      {"temperature_low", {.temperature = 0.5}},
      {"temperature_high", {.temperature = 1.8}},
      {"top_k", {.top_k = 5}},
      {"top_p", {.top_p = 0.7}},
      {"min_p", {.min_p = 0.15}},
      {"typical_p", {.typical_p = 0.6}},
      {"repetition", {.repetition_penalty = 1.6}},
      {"frequency", {.frequency_penalty = 0.8}},
      {"presence", {.presence_penalty = -1.5}},
      {"bias_and_allowed",
       {.logit_bias = {{3, 1.5F}, {4, -100.0F}}, .allowed = {0, 1, 2, 3, 4, 9}}},
      {"all_at_once",
       {.temperature = 1.3,
        .top_p = 0.9,
        .min_p = 0.05,
        .typical_p = 0.95,
        .top_k = 12,
        .repetition_penalty = 1.2,
        .frequency_penalty = 0.3,
        .presence_penalty = 0.2}},
  };
}

class Sampling : public testing::TestWithParam<SamplingCase> {};
INSTANTIATE_TEST_SUITE_P(
    Sampler,
    Sampling,
    testing::ValuesIn(sampling_cases()),
    [](const auto& param) { return param.param.name; });

TEST_P(Sampling, picks_exactly_what_the_order_of_steps_says) {
  const SampleContext context{.prompt = kPromptSoFar, .answer = kAnswerSoFar, .banned = {}};
  for (uint32_t round = 0; round < 500; ++round) {
    SamplingParams params = GetParam().params;
    params.seed = round;
    params.choice = round % 3;
    const std::vector<float> logits = random_logits(24, round);
    const std::vector<double> p = reference_probabilities(logits, params, context);
    // The inverse of the distribution, in order of id.
    const double u = uniform_draw(params.seed, params.choice, kAnswerSoFar.size());
    double sum = 0;
    uint32_t expected = 0;
    bool is_near_border = false;
    for (uint32_t id = 0; id < p.size() && sum <= u; ++id) {
      sum += p[id];
      if (p[id] > 0) expected = id;
      is_near_border = is_near_border || std::abs(sum - u) < 1e-6;
    }
    if (!is_near_border) {
      EXPECT_EQ(pick(logits, params, context), expected) << round;
    }
  }
}

TEST_P(Sampling, draws_are_distributed_as_the_order_of_steps_says) {
  constexpr int kDraws = 100'000;
  const SampleContext context{.prompt = kPromptSoFar, .answer = kAnswerSoFar, .banned = {}};
  SamplingParams params = GetParam().params;
  std::vector<float> logits = random_logits(24, 4);
  for (float& logit : logits)
    logit /= 2;  // so that no token is too rare for the test
  const std::vector<double> p = reference_probabilities(logits, params, context);
  Sampler sampler(static_cast<uint32_t>(logits.size()));
  std::vector<int> seen(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    params.seed = i;
    ++seen[sampler.sample(logits, params, context).token];
  }
  double chi_squared = 0;
  int degrees = -1;
  double rare_p = 0;
  int rare_seen = 0;
  const auto add = [&](double expected, int found) {
    chi_squared += (found - expected) * (found - expected) / expected;
    ++degrees;
  };
  for (size_t id = 0; id < p.size(); ++id) {
    if (p[id] == 0) {
      EXPECT_EQ(seen[id], 0) << id;
    } else if (p[id] * kDraws < 10) {
      rare_p += p[id];
      rare_seen += seen[id];
    } else {
      add(p[id] * kDraws, seen[id]);
    }
  }
  if (rare_p > 0) add(rare_p * kDraws, rare_seen);
  ASSERT_GT(degrees, 0);
  // Wilson and Hilferty's approximation of the quantile that one run in 10,000 is above.
  const double spread = 2.0 / (9.0 * degrees);
  EXPECT_LT(chi_squared, degrees * std::pow(1 - spread + 3.719 * std::sqrt(spread), 3));
}

}  // namespace
}  // namespace nightsweep
