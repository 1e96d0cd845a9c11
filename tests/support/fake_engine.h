// An Engine without a model: the next token is a function of prompt, seed, choice and position, so
// what it says survives batching and resuming as a real one's answers must.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"

namespace nightsweep {

class FakeEngine : public Engine {
 public:
  explicit FakeEngine(const Tokenizer& tokenizer, uint32_t max_sequences = 8)
      : tokenizer_(tokenizer), max_sequences_(max_sequences) {}

  const ModelConfig& config() const override { return config_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  const Device& device() const override { std::abort(); }  // nobody asks a fake
  uint32_t context_tokens() const override { return 256; }
  std::string identity() const override { return identity_text; }

  void submit(SequenceRequest request) override {
    n_resumed_tokens += request.resumed.size();
    Running running;
    running.tokens = request.resumed;
    running.request = std::move(request);
    running_.push_back(std::move(running));
  }
  bool wants_more() const override { return running_.size() < max_sequences_; }
  size_t n_active() const override { return running_.size(); }
  bool cancel(uint64_t handle) override {
    return std::erase_if(running_, [&](const Running& r) { return r.request.handle == handle; }) >
           0;
  }

  StepReport step() override {
    StepReport report;
    report.seconds = 0.001;
    ++n_steps;
    if (n_steps == lost_at_step) fail(ErrorKind::device, "the device is lost");
    const size_t n_running =
        has_places ? std::min<size_t>(running_.size(), max_sequences_) : running_.size();
    for (size_t i = 0; i < n_running; ++i) {
      Running& running = running_[i];
      const SequenceRequest& request = running.request;
      report.members.push_back(request.handle);
      report.member_rows.push_back(1);
      if (request.prompt.size() == poison_prompt_tokens) {
        SequenceResult result;
        result.handle = request.handle;
        result.reason = FinishReason::error;
        result.error = "the logits hold NaN";
        report.finished.push_back(result);
        running.is_done = true;
        continue;
      }
      uint64_t most = request.max_tokens.value_or(40);
      if (running.tokens.size() < most) {
        uint32_t token = next_token(running);
        running.tokens.push_back(token);
        ++n_decoded;
        report.new_tokens.emplace_back(request.handle, token);
      }
      if (running.tokens.size() >= most) {
        report.finished.push_back(result_of(running));
        running.is_done = true;
      }
    }
    std::erase_if(running_, [](const Running& r) { return r.is_done; });
    return report;
  }

  EngineStats stats() const override {
    EngineStats stats;
    stats.max_sequences = max_sequences_;
    stats.steps = n_steps;
    stats.decode_tokens = n_decoded;
    stats.step_s = 0.001 * static_cast<double>(n_steps);
    return stats;
  }
  void logits(
      const std::vector<uint32_t>& /*tokens*/,
      uint32_t /*chunk*/,
      const std::function<void(uint32_t, uint32_t, const float*)>& /*sink*/) override {}

  std::string identity_text = "fake/1";
  size_t poison_prompt_tokens = 0;  // prompts of this length end in an error
  uint64_t lost_at_step = 0;        // the device; 0: never
  bool has_places = false;          // who comes when max_sequences run waits, as in a real one
  uint64_t n_shared_tokens = 0;     // of every prompt
  uint64_t n_steps = 0;
  uint64_t n_resumed_tokens = 0;
  uint64_t n_decoded = 0;

 private:
  struct Running {
    SequenceRequest request;
    std::vector<uint32_t> tokens;
    bool is_done = false;
  };

  uint32_t next_token(const Running& running) const {
    uint64_t hash = 1469598103934665603ULL;
    auto mix = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211ULL; };
    for (uint32_t token : running.request.prompt)
      mix(token);
    mix(static_cast<uint64_t>(running.request.sampling.seed));
    mix(running.request.sampling.choice);
    mix(running.tokens.size());
    // Byte tokens of 'a' to 'z' in the tiny vocabulary.
    return static_cast<uint32_t>(3 + 'a' + (hash >> 32) % 26);
  }

  SequenceResult result_of(const Running& running) const {
    SequenceResult result;
    result.handle = running.request.handle;
    result.reason = FinishReason::length;
    result.tokens = running.tokens;
    result.text = tokenizer_.decode(running.tokens, true);
    result.n_prompt_tokens = running.request.prompt.size();
    result.n_shared_tokens = n_shared_tokens;
    result.n_answer_tokens = running.tokens.size();
    if (running.request.wants_logprobs) {
      for (uint32_t token : running.tokens)
        result.logprobs.push_back({.id = token, .logprob = -1, .top = {}});
    }
    if (running.request.echo_logprobs) {
      for (uint32_t token : running.request.prompt)
        result.prompt_logprobs.push_back({.id = token, .logprob = -2, .top = {}});
    }
    return result;
  }

  const Tokenizer& tokenizer_;
  uint32_t max_sequences_;
  ModelConfig config_;
  std::vector<Running> running_;
};

}  // namespace nightsweep
