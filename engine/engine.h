// Engine: sequences in, tokens out. Continuous batching over one model.
//
// A step packs decode rows first, then chunks of prompts, up to `max_rows`, or beside answers up to
// what a sweep computes while its weights stream; sequences join and leave at every step. Pages are
// taken as sequences grow. When they run short the sequence that was admitted last gives its pages
// up, waits, and is prefilled again later, with the same bits.
// Equal beginnings are prefilled once, and their pages shared or copied: no bit depends on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/answer.h"
#include "engine/chat_template.h"
#include "engine/gguf.h"
#include "engine/model_config.h"
#include "engine/sampler.h"
#include "engine/tokenizer.h"
#include "engine/weight_stream.h"
#include "kernels/device.h"

namespace nightsweep {

struct EngineOptions {
  uint64_t ram_bytes = 0;      // weights, KV, ring and scratch together; 0: available less a margin
  uint64_t vram_bytes = 0;     // the same on a device with memory of its own
  uint32_t max_sequences = 0;  // 0: what memory allows, at most 64 on the CPU and 256 on a GPU
  uint32_t context_tokens = 0;          // 0: the model's own
  uint32_t typical_tokens = 0;          // prompt and answer, as far as one can tell; 0: a default
  uint32_t most_kv_pages = UINT32_MAX;  // that the work can fill: more would be taken from weights
  KvType kv_type = KvType::f16;
  double disk_rate = 0;
  double link_rate = 0;
  // Of weights, on a device with memory of its own: what is beyond it streams, even if it fits.
  uint64_t most_resident_bytes = UINT64_MAX;
  std::string source = "auto";
  uint32_t max_rows = 0;  // rows of a step; 0: a default. Changes no bit
  // NaN and infinity end a sequence and name the layer. Costs time: nothing is shared, so that
  // each finds its own.
  bool verify_numerics = false;
  bool shares_prefixes = true;
};

struct SequenceRequest {
  uint64_t handle = 0;            // the caller's; comes back in every event
  std::vector<uint32_t> prompt;   // at least one token
  std::vector<uint32_t> resumed;  // answer tokens known from a checkpoint
  SamplingParams sampling;
  std::optional<uint64_t> max_tokens;  // of the answer; none: the rest of the context
  uint64_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;  // cut from the answer
  bool include_stop_in_output = false;
  std::vector<uint32_t> stop_token_ids;
  // Token sequences of the answer whose last token may not be drawn behind the others.
  std::vector<std::vector<uint32_t>> bad_words;
  bool skip_special_tokens = true;
  bool wants_logprobs = false;
  uint32_t n_top_logprobs = 0;
  bool echo_logprobs = false;  // score the prompt as well
};

// One token of an answer, as a person and a log-probability see it.
struct AnswerToken {
  uint32_t id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct SequenceResult {
  uint64_t handle = 0;
  FinishReason reason = FinishReason::none;
  std::string error;                  // for reason error
  std::string text;                   // stop strings cut
  std::vector<uint32_t> tokens;       // answer ids; the end-of-generation id is not among them
  std::vector<AnswerToken> logprobs;  // one a token of the answer, if asked for
  std::vector<AnswerToken> prompt_logprobs;  // one a prompt token, the first without a value
  uint64_t n_prompt_tokens = 0;
  uint64_t n_shared_tokens = 0;  // of the prompt, computed by another sequence
  uint64_t n_answer_tokens = 0;  // the end-of-generation token included
  double prefill_s = 0;          // from admission to the first token
  double decode_s = 0;           // from there to the end
  uint64_t sweeps = 0;           // steps it took part in
};

struct StepReport {
  uint32_t rows = 0;
  uint32_t decode_rows = 0;
  uint32_t prefill_rows = 0;
  uint32_t evictions = 0;
  double seconds = 0;
  std::vector<uint64_t> members;                          // handles that took part
  std::vector<uint32_t> member_rows;                      // (members) rows of each
  std::vector<std::pair<uint64_t, uint32_t>> new_tokens;  // (handle, token), to checkpoint
  std::vector<SequenceResult> finished;
};

struct EngineStats {
  StreamStats stream;
  uint64_t budget_bytes = 0;  // of memory, the device's
  uint64_t weight_bytes = 0;  // of the model, in the file
  uint64_t kv_bytes = 0;
  uint32_t kv_pages = 0;
  uint32_t kv_pages_free = 0;
  uint32_t max_sequences = 0;
  uint32_t free_rows = 0;  // of a sweep, computed while its weights stream; 0: not known
  uint64_t steps = 0;
  uint64_t decode_tokens = 0;
  uint64_t prefill_tokens = 0;
  uint64_t shared_tokens =
      0;  // not prefilled: computed before, by another sequence or before an eviction
  uint64_t evictions = 0;
  double step_s = 0;         // total time in steps
  double device_idle_s = 0;  // of it and between steps: the device had no operators (see Device)
};

class Engine {
 public:
  // Throws Error(model) or Error(device).
  static std::unique_ptr<Engine> open(
      std::shared_ptr<const GgufModel> model,
      std::unique_ptr<Device> device,
      const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual const Device& device() const = 0;
  virtual uint32_t context_tokens() const = 0;
  // Model fingerprint, backend, kernel version, KV type: a checkpoint under another identity
  // must not be continued.
  virtual std::string identity() const = 0;

  // Queues a sequence; it is admitted at a step, first come first served.
  // REQUIRES: the prompt fits the context (prompt < context_tokens()).
  // `resumed` tokens that meet a stop condition end the sequence without another step; the result
  // comes with the next step().
  virtual void submit(SequenceRequest request) = 0;
  // More sequences could join at the next step.
  virtual bool wants_more() const = 0;
  virtual size_t n_active() const = 0;  // running and waiting
  // Takes a sequence out; its pages are free at once. False: not here.
  virtual bool cancel(uint64_t handle) = 0;

  // One sweep. Does nothing when n_active() is 0. After an error nothing is left but the
  // destructor: pages may not hold what they are known for.
  virtual StepReport step() = 0;
  virtual EngineStats stats() const = 0;

  // Logits of every position of `tokens`, in chunks of `chunk` rows (0: max_rows):
  // sink(first_position, n_rows, logits (n_rows, n_vocab)). REQUIRES: n_active() is 0.
  virtual void logits(
      const std::vector<uint32_t>& tokens,
      uint32_t chunk,
      const std::function<void(uint32_t, uint32_t, const float*)>& sink) = 0;
};

}  // namespace nightsweep
