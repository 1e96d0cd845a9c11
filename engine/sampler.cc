#include "engine/sampler.h"

#include <Random123/philox.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/format.h"

namespace nightsweep {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// exp for x <= 0, relative error below 2e-7. Branch-free, so that the compiler makes vectors of
// the loop over a vocabulary; libm's expf is a call a token, 10% of a step at 64 sequences.
// Cody-Waite reduction and the degree 5 polynomial of Cephes' expf.
inline float exp_below_one(float x) {
  x = std::max(x, -87.0F);
  float n = std::floor(x * 1.44269504F + 0.5F);
  float r = x - n * 0.693359375F;
  r = r - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  float value = p * r * r + r + 1.0F;
  return value * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// Largest value, the lowest id on a tie; also sees NaN. -1 when a logit is NaN.
int64_t find_best(std::span<const float> logits) {
  size_t best = 0;
  bool sound = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    sound &= logits[i] == logits[i];
    if (logits[i] > logits[best]) best = i;
  }
  return sound ? static_cast<int64_t>(best) : -1;
}

uint32_t best_or_throw(std::span<const float> logits) {
  int64_t best = find_best(logits);
  if (best < 0) throw LogitsError(kLogitsHoldNan);
  if (!std::isfinite(logits[static_cast<size_t>(best)])) {
    throw LogitsError(kLogitsAreInfinite);
  }
  return static_cast<uint32_t>(best);
}

// ln(sum(exp(logits))), summed in double by blocks.
double log_sum_exp(std::span<const float> logits, float highest) {
  constexpr size_t kBlock = 1024;
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    size_t end = std::min(begin + kBlock, logits.size());
    float exps[kBlock];
    for (size_t i = begin; i < end; ++i)
      exps[i - begin] = exp_below_one(logits[i] - highest);
    for (size_t i = begin; i < end; ++i)
      total += exps[i - begin];
  }
  return static_cast<double>(highest) + std::log(total);
}

}  // namespace

double uniform_draw(int64_t seed, uint32_t choice, uint64_t position) {
  auto key = static_cast<uint64_t>(seed);
  r123::Philox4x32::key_type words = {
      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
  r123::Philox4x32::ctr_type counter = {
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice, 0}};
  auto random = r123::Philox4x32()(counter, words);
  uint64_t bits = (static_cast<uint64_t>(random[0]) << 32 | random[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

Sampler::Sampler(uint32_t n_vocab) : work_(n_vocab), weights_(n_vocab), counts_(n_vocab) {}

Sample Sampler::score(std::span<const float> logits, uint32_t token, uint32_t n_top_logprobs) {
  float highest = logits[best_or_throw(logits)];
  double total = log_sum_exp(logits, highest);
  Sample scored{.token = token, .logprob = static_cast<float>(logits[token] - total), .top = {}};
  if (n_top_logprobs > 0) {
    kept_.resize(logits.size());
    std::iota(kept_.begin(), kept_.end(), 0U);
    auto end = kept_.begin() + std::min<size_t>(n_top_logprobs, kept_.size());
    std::partial_sort(kept_.begin(), end, kept_.end(), [&](uint32_t a, uint32_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    for (auto id = kept_.begin(); id != end; ++id) {
      scored.top.push_back({*id, static_cast<float>(logits[*id] - total)});
    }
  }
  return scored;
}

Sample Sampler::sample(
    std::span<const float> logits,
    const SamplingParams& params,
    const SampleContext& context) {
  const uint32_t best = best_or_throw(logits);
  const bool is_changed = !params.logit_bias.empty() || !context.banned.empty() ||
                          params.repetition_penalty != 1.0 || params.frequency_penalty != 0 ||
                          params.presence_penalty != 0;
  if (!is_changed && params.temperature <= 0) {
    if (!context.wants_logprob) return {.token = best, .logprob = 0, .top = {}};
    return score(logits, best, context.n_top_logprobs);
  }
  std::copy(logits.begin(), logits.end(), work_.begin());
  if (!params.allowed.empty()) {
    std::fill(work_.begin(), work_.end(), kNever);
    for (uint32_t token : params.allowed)
      work_[token] = logits[token];
  }
  for (auto [token, bias] : params.logit_bias)
    work_[token] += bias;
  for (uint32_t token : context.banned)
    work_[token] = kNever;
  penalize(params, context);
  uint32_t token = best_or_throw(work_);
  if (params.temperature > 0) token = draw(params, context.answer.size());
  if (!context.wants_logprob) return {.token = token, .logprob = 0, .top = {}};
  return score(logits, token, context.n_top_logprobs);
}

void Sampler::penalize(const SamplingParams& params, const SampleContext& context) {
  bool repetition = params.repetition_penalty != 1.0;
  if (repetition) {
    auto r = static_cast<float>(params.repetition_penalty);
    auto once = [&](uint32_t token) {
      if (counts_[token]++ > 0) return;
      work_[token] = work_[token] > 0 ? work_[token] / r : work_[token] * r;
    };
    for (uint32_t token : context.prompt)
      once(token);
    for (uint32_t token : context.answer)
      once(token);
    for (uint32_t token : context.prompt)
      counts_[token] = 0;
    for (uint32_t token : context.answer)
      counts_[token] = 0;
  }
  if (params.frequency_penalty == 0 && params.presence_penalty == 0) return;
  for (uint32_t token : context.answer)
    ++counts_[token];
  for (uint32_t token : context.answer) {
    if (counts_[token] == 0) continue;
    work_[token] -=
        static_cast<float>(counts_[token] * params.frequency_penalty + params.presence_penalty);
    counts_[token] = 0;
  }
}

uint32_t Sampler::draw(const SamplingParams& params, uint64_t position) {
  float highest = work_[best_or_throw(work_)];
  auto inverse = static_cast<float>(1.0 / params.temperature);
  for (size_t i = 0; i < work_.size(); ++i) {
    // Below exp(-87) a token has no chance; a banned one must have exactly none.
    float weight = exp_below_one(std::max((work_[i] - highest) * inverse, -88.0F));
    weights_[i] = work_[i] == kNever ? 0.0F : weight;
  }
  kept_.clear();
  auto least = static_cast<float>(params.min_p);
  for (uint32_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] >= least && weights_[i] > 0) kept_.push_back(i);
  }
  if (params.top_k > 0) keep_top_k(params.top_k);
  if (params.typical_p < 1.0) keep_typical(params.typical_p);
  if (params.top_p < 1.0) keep_top_p(params.top_p);
  // In order of id, whatever the filters left: the same set gives the same draw.
  if (params.top_k > 0 || params.typical_p < 1.0 || params.top_p < 1.0) {
    std::sort(kept_.begin(), kept_.end());
  }
  double total = 0;
  for (uint32_t id : kept_)
    total += weights_[id];
  double left = uniform_draw(params.seed, params.choice, position) * total;
  for (uint32_t id : kept_) {
    left -= weights_[id];
    if (left < 0) return id;
  }
  return kept_.back();
}

void Sampler::keep_top_k(int64_t k) {
  if (static_cast<uint64_t>(k) >= kept_.size()) return;
  auto better = [&](uint32_t a, uint32_t b) {
    return work_[a] != work_[b] ? work_[a] > work_[b] : a < b;
  };
  std::nth_element(kept_.begin(), kept_.begin() + k, kept_.end(), better);
  kept_.resize(static_cast<size_t>(k));
}

void Sampler::keep_typical(double p) {
  double total = 0;
  for (uint32_t id : kept_)
    total += weights_[id];
  const auto surprise_of = [&](uint32_t id) { return -std::log(weights_[id] / total); };
  double entropy = 0;
  for (uint32_t id : kept_)
    entropy += weights_[id] / total * surprise_of(id);
  std::vector<std::pair<double, uint32_t>> order;  // distance to the entropy, id
  order.reserve(kept_.size());
  for (uint32_t id : kept_)
    order.emplace_back(std::abs(surprise_of(id) - entropy), id);
  std::sort(order.begin(), order.end());
  double sum = 0;
  kept_.clear();
  for (auto [distance, id] : order) {
    kept_.push_back(id);
    sum += weights_[id];
    if (sum >= p * total) break;
  }
}

void Sampler::keep_top_p(double p) {
  auto better = [&](uint32_t a, uint32_t b) {
    return work_[a] != work_[b] ? work_[a] > work_[b] : a < b;
  };
  double total = 0;
  for (uint32_t id : kept_)
    total += weights_[id];
  // The head of the order is nearly always enough; sort more only when it is not.
  size_t sorted = 0;
  double sum = 0;
  for (size_t wanted = 64; sorted < kept_.size(); wanted *= 8) {
    size_t end = std::min(wanted, kept_.size());
    std::partial_sort(
        kept_.begin() + static_cast<ptrdiff_t>(sorted), kept_.begin() + static_cast<ptrdiff_t>(end),
        kept_.end(), better);
    for (; sorted < end; ++sorted) {
      sum += weights_[kept_[sorted]];
      if (sum >= p * total) {
        kept_.resize(sorted + 1);
        return;
      }
    }
  }
}

}  // namespace nightsweep
