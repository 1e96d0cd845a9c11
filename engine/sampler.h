// From logits to the next token.
//
// Order of operations as vLLM has it: allowed ids, logit bias and banned tokens, repetition,
// frequency and presence penalties, greedy if the temperature is 0, else temperature, min_p, top_k,
// top_p, draw. typical_p, which vLLM lacks, comes between top_k and top_p as in llama.cpp (Meister
// et al., "Locally typical sampling", 2023): the tokens whose surprise is nearest to the entropy,
// until their probabilities add up to typical_p. Each filter sees what the one before has left,
// with probabilities that sum to one.
// A draw depends on (seed, choice, position) alone: random numbers come from Philox 4x32-10
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), by the Random123 library.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace nightsweep {

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy, lowest id on a tie
  double top_p = 1.0;
  double min_p = 0.0;
  double typical_p = 1.0;
  int64_t top_k = 0;                // 0 or -1: off; the lower id stays on a tie
  double repetition_penalty = 1.0;  // prompt and answer
  double frequency_penalty = 0.0;   // answer only
  double presence_penalty = 0.0;    // answer only
  std::vector<std::pair<uint32_t, float>> logit_bias;
  std::vector<uint32_t> allowed;  // no other id may be drawn; empty: all may
  int64_t seed = 0;
  uint32_t choice = 0;
};

struct TokenLogprob {
  uint32_t token = 0;
  float logprob = 0;  // natural log, softmax over the whole vocabulary of the raw logits
};

struct Sample {
  uint32_t token = 0;
  float logprob = 0;              // 0 unless asked for
  std::vector<TokenLogprob> top;  // best first, lower id first on a tie
};

// What the sampler knows of a sequence.
struct SampleContext {
  std::span<const uint32_t> prompt;
  std::span<const uint32_t> answer;  // tokens generated so far; its size is the position
  std::span<const uint32_t> banned;  // ids that may not be drawn now
  bool wants_logprob = false;
  uint32_t n_top_logprobs = 0;
};

// The logits hold NaN, or nothing that may be drawn. Ends that request alone.
class LogitsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
inline constexpr const char* kLogitsHoldNan = "the model's logits hold NaN at this position";
inline constexpr const char* kLogitsAreInfinite = "no token may be drawn: every logit is infinite";

// Uniform in [0, 1), 53 bits.
double uniform_draw(int64_t seed, uint32_t choice, uint64_t position);

// Keeps scratch memory between calls; one object a thread.
class Sampler {
 public:
  explicit Sampler(uint32_t n_vocab);

  // logits: (n_vocab), raw; not changed. Throws LogitsError.
  Sample
  sample(std::span<const float> logits, const SamplingParams& params, const SampleContext& context);
  // The log-probability of a token that is already known (echo, resumed answers).
  Sample score(std::span<const float> logits, uint32_t token, uint32_t n_top_logprobs);

 private:
  void penalize(const SamplingParams& params, const SampleContext& context);
  uint32_t draw(const SamplingParams& params, uint64_t position);
  void keep_top_k(int64_t k);
  void keep_typical(double p);
  void keep_top_p(double p);

  std::vector<float> work_;       // (n_vocab) logits after bias and penalties
  std::vector<float> weights_;    // (n_vocab) exp((logit - max) / temperature)
  std::vector<uint32_t> counts_;  // (n_vocab) zero between calls
  std::vector<uint32_t> kept_;    // ids that may be drawn
};

}  // namespace nightsweep
