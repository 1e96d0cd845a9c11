#include "engine/token_picks.h"

#include <algorithm>
#include <limits>

namespace nightsweep {

bool TokenPicks::covers(const SamplingParams& params) {
  return params.typical_p >= 1.0 && params.allowed.empty();
}

void TokenPicks::clear() {
  rows_.clear();
  picks_.clear();
  edits_.clear();
}

void TokenPicks::add(uint32_t row, const SamplingParams& params, const SampleContext& context) {
  PickRow pick;
  pick.row = row;
  if (params.temperature > 0) {
    pick.inverse_temperature = static_cast<float>(1.0 / params.temperature);
    pick.min_p = static_cast<float>(params.min_p);
    pick.top_p = params.top_p;
    constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
    pick.top_k = static_cast<uint32_t>(std::clamp<int64_t>(params.top_k, 0, kMost));
    pick.uniform = uniform_draw(params.seed, params.choice, context.answer.size());
  }
  pick.repetition_penalty = static_cast<float>(params.repetition_penalty);
  add_edits(params, context, edits_.emplace_back());
  pick.edits = edits_.back();
  rows_.push_back(pick);
}

void TokenPicks::add_edits(
    const SamplingParams& params,
    const SampleContext& context,
    std::vector<LogitEdit>& edits) {
  const auto edit_of = [&](uint32_t token) -> LogitEdit& {
    if (places_[token] == 0) {
      edits.push_back({.token = token});
      places_[token] = static_cast<uint32_t>(edits.size());
    }
    return edits[places_[token] - 1];
  };
  for (auto [token, bias] : params.logit_bias)
    edit_of(token).bias += bias;
  for (uint32_t token : context.banned)
    edit_of(token).is_banned = true;
  if (params.repetition_penalty != 1.0) {
    for (uint32_t token : context.prompt)
      edit_of(token).is_repeated = true;
    for (uint32_t token : context.answer)
      edit_of(token).is_repeated = true;
  }
  if (params.frequency_penalty != 0 || params.presence_penalty != 0) {
    for (uint32_t token : context.answer)
      edit_of(token).subtracted += 1;  // how often, until all are counted
    for (LogitEdit& edit : edits) {
      if (edit.subtracted == 0) continue;
      edit.subtracted = static_cast<float>(
          static_cast<double>(edit.subtracted) * params.frequency_penalty +
          params.presence_penalty);
    }
  }
  for (const LogitEdit& edit : edits)
    places_[edit.token] = 0;
}

void TokenPicks::choose(Device& device, float* logits) {
  if (rows_.empty()) return;
  picks_.resize(rows_.size());
  device.pick(logits, n_vocab_, rows_, picks_);
}

bool TokenPicks::has(uint32_t row) const {
  return std::ranges::binary_search(rows_, row, {}, &PickRow::row);
}

uint32_t TokenPicks::token(uint32_t row) const {
  const auto found = std::ranges::lower_bound(rows_, row, {}, &PickRow::row);
  const Pick& pick = picks_[static_cast<size_t>(found - rows_.begin())];
  switch (pick.fault) {
    case PickFault::none:
      return pick.token;
    case PickFault::not_a_number:
      throw LogitsError(kLogitsHoldNan);
    case PickFault::infinite:
      throw LogitsError(kLogitsAreInfinite);
  }
  return pick.token;
}

}  // namespace nightsweep
