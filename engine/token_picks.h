// Tokens that the device chooses, so that whole rows of logits need not leave it.
//
// The same operations in the same order as Sampler, drawn with the same random number; the bits of
// the arithmetic between are the device's own.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "kernels/device.h"

namespace nightsweep {

// One object an engine; keeps its memory between steps.
class TokenPicks {
 public:
  explicit TokenPicks(uint32_t n_vocab) : n_vocab_(n_vocab), places_(n_vocab, 0) {}

  // Whether a device has all that these ask for; Sampler chooses for the others.
  static bool covers(const SamplingParams& params);

  void clear();
  // Row `row` of the step's logits wants a token; rows rising. REQUIRES: covers(params), and no
  // log-probability is wanted: that needs the whole row.
  void add(uint32_t row, const SamplingParams& params, const SampleContext& context);
  // Chooses for all rows at once; changes those rows. Waits for the device.
  void choose(Device& device, float* logits);

  // After choose(): whether it was asked for this row.
  bool has(uint32_t row) const;
  // Throws LogitsError as Sampler::sample() does.
  uint32_t token(uint32_t row) const;

 private:
  void add_edits(
      const SamplingParams& params,
      const SampleContext& context,
      std::vector<LogitEdit>& edits);

  uint32_t n_vocab_;
  std::vector<PickRow> rows_;
  std::vector<Pick> picks_;
  std::deque<std::vector<LogitEdit>> edits_;  // of rows_; addresses stay
  std::vector<uint32_t> places_;              // (n_vocab) 1 + place of a token's edit; else zero
};

}  // namespace nightsweep
