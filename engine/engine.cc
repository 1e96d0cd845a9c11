#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/free_rows.h"
#include "engine/host_memory.h"
#include "engine/memory_demand.h"
#include "engine/model.h"
#include "engine/placement.h"
#include "engine/plan.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/token_picks.h"

namespace nightsweep {

namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

uint32_t choose_context(const GgufModel& gguf, const ModelConfig& config, uint32_t asked) {
  uint32_t own = config.context_tokens > 0 ? config.context_tokens : kContextWhenUnknown;
  if (asked == 0) return own;
  if (config.context_tokens > 0 && asked > config.context_tokens) {
    fail(
        ErrorKind::usage, "--context {}: {} was made for at most {} tokens", asked, gguf.name(),
        config.context_tokens);
  }
  return asked;
}

class BatchingEngine final : public Engine {
 public:
  BatchingEngine(
      std::shared_ptr<const GgufModel> gguf,
      std::unique_ptr<Device> device,
      const EngineOptions& options)
      : gguf_(std::move(gguf)),
        device_(std::move(device)),
        kv_type_(options.kv_type),
        verifies_(options.verify_numerics) {
    config_ = read_model_config(*gguf_);
    tokenizer_ = Tokenizer::from_gguf(*gguf_);
    check_vocabulary_size(*gguf_, config_);
    context_tokens_ = choose_context(*gguf_, config_, options.context_tokens);

    KvShape shape{.type = kv_type_, .n_kv_heads = config_.n_kv_heads, .head_dim = config_.head_dim};
    MemoryDemand demand = memory_demand(*gguf_, config_, *device_, shape);
    demand.context_tokens = context_tokens_;
    demand.max_sequences = options.max_sequences;
    demand.max_rows = options.max_rows;
    if (options.typical_tokens > 0) demand.typical_tokens = options.typical_tokens;
    demand.most_kv_pages = options.most_kv_pages;
    demand.most_resident_bytes = options.most_resident_bytes;
    ram_bytes_ = options.ram_bytes > 0 ? options.ram_bytes : default_ram_budget();
    make_plan(demand, options);

    model_ = Model::make(
        *gguf_, config_, *device_,
        {.limits = plan_.limits,
         .max_slice_bytes = plan_.max_slice_bytes,
         .embedding_resident = plan_.embedding_resident,
         .embedding_in_host = keeps_embedding(ram_bytes_, demand.embedding_bytes),
         .verify_numerics = options.verify_numerics});
    kv_ = std::make_unique<KvCache>(*device_, shape, config_.n_layers, plan_.n_kv_pages);
    open_stream(options, demand.embedding_bytes);
    scheduler_ = std::make_unique<Scheduler>(
        *kv_, Scheduler::Limits{
                  .max_sequences = plan_.max_sequences,
                  .step = plan_.limits,
                  .context_tokens = context_tokens_,
                  .shares_prefixes = options.shares_prefixes && !options.verify_numerics});
    sampler_ = std::make_unique<Sampler>(config_.n_vocab);
    picks_ = std::make_unique<TokenPicks>(config_.n_vocab);
    const uint64_t room = kv_tokens();
    if (room < context_tokens_ && plan_.n_kv_pages < options.most_kv_pages) {
      log_info(
          "KV pages for {} tokens fit into {}; a longer prompt and answer (the context is {}) ends "
          "in an error line. Raise {} or choose --kv q8_0 for more",
          room, size_text(budget_bytes_), context_tokens_, budget_option_);
    }
  }

  const ModelConfig& config() const override { return config_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const Device& device() const override { return *device_; }
  uint32_t context_tokens() const override { return context_tokens_; }
  std::string identity() const override {
    return format(
        "{}/{}/kv-{}", gguf_->fingerprint(), device_->kernel_version(), kv_type_name(kv_type_));
  }

  void submit(SequenceRequest request) override {
    uint64_t room = context_tokens_ - std::min<uint64_t>(request.prompt.size(), context_tokens_);
    StopRules rules{
        .max_tokens = std::min(request.max_tokens.value_or(room), room),
        .min_tokens = request.min_tokens,
        .ignore_eos = request.ignore_eos,
        .strings = request.stop,
        .include_stop_in_output = request.include_stop_in_output,
        .token_ids = request.stop_token_ids,
        .skip_special_tokens = request.skip_special_tokens};
    request.max_tokens = rules.max_tokens;
    std::vector<uint32_t> resumed = std::move(request.resumed);
    auto sequence = std::make_unique<Sequence>(
        std::move(request), AnswerText(*tokenizer_, std::move(rules)), *kv_);
    for (uint32_t token : resumed) {
      if (sequence->answer.push(token) != FinishReason::none) break;
    }
    bool is_done = sequence->answer.reason() != FinishReason::none;
    bool needs_scores = sequence->request.wants_logprobs || sequence->request.echo_logprobs;
    if (is_done && !needs_scores) {
      ended_early_.push_back(result_of(*sequence, sequence->answer.reason(), ""));
    } else {
      scheduler_->add(std::move(sequence));
    }
  }

  bool wants_more() const override { return scheduler_->wants_more(); }
  size_t n_active() const override { return scheduler_->n_active() + ended_early_.size(); }
  bool cancel(uint64_t handle) override { return scheduler_->remove(handle) != nullptr; }

  StepReport step() override {
    StepReport report;
    report.finished = std::exchange(ended_early_, {});
    if (scheduler_->is_empty()) return report;
    Clock::time_point start = Clock::now();
    uint64_t evictions_before = scheduler_->n_evictions();
    std::vector<std::unique_ptr<Sequence>> hopeless;
    step_.clear();
    std::vector<Chunk> chunks = scheduler_->next_step(step_, hopeless);
    for (const auto& sequence : hopeless) {
      report.finished.push_back(
          result_of(*sequence, FinishReason::error, too_long_text(*sequence)));
    }
    report.evictions = static_cast<uint32_t>(scheduler_->n_evictions() - evictions_before);
    if (!chunks.empty()) sweep(chunks, report);
    report.seconds = seconds_between(start, Clock::now());
    learn_free_rows(report);
    decode_tokens_ += report.decode_rows;
    prefill_tokens_ += report.prefill_rows;
    step_s_ += report.seconds;
    return report;
  }

  EngineStats stats() const override {
    EngineStats stats;
    stats.stream = stream_->stats();
    stats.budget_bytes = budget_bytes_;
    stats.weight_bytes = model_->weight_plan().streamable_bytes;
    stats.kv_bytes =
        KvCache::page_bytes_all_layers(
            *device_,
            {.type = kv_type_, .n_kv_heads = config_.n_kv_heads, .head_dim = config_.head_dim},
            config_.n_layers) *
        plan_.n_kv_pages;
    stats.kv_pages = plan_.n_kv_pages;
    stats.kv_pages_free = kv_->n_free();
    stats.max_sequences = plan_.max_sequences;
    stats.free_rows = free_rows_.is_known() ? free_rows_.rows() : 0;
    stats.steps = steps_;
    stats.decode_tokens = decode_tokens_;
    stats.prefill_tokens = prefill_tokens_;
    stats.shared_tokens = scheduler_->n_shared_tokens();
    stats.evictions = scheduler_->n_evictions();
    stats.step_s = step_s_;
    stats.device_idle_s = device_->idle_s();
    return stats;
  }

  void logits(
      const std::vector<uint32_t>& tokens,
      uint32_t chunk,
      const std::function<void(uint32_t, uint32_t, const float*)>& sink) override {
    if (tokens.size() > kv_tokens()) {
      fail(
          ErrorKind::device, "{} tokens: KV pages for {} fit into {} {}; raise it", tokens.size(),
          kv_tokens(), budget_option_, size_text(budget_bytes_));
    }
    KvPages pages(*kv_);
    uint32_t most = std::min(plan_.limits.max_rows, plan_.limits.max_logit_rows);
    if (chunk == 0 || chunk > most) chunk = most;
    for (uint32_t first = 0; first < tokens.size(); first += chunk) {
      auto end = static_cast<uint32_t>(std::min<size_t>(first + chunk, tokens.size()));
      pages.grow_to(end);
      step_.clear();
      step_.add_sequence(pages.table());
      for (uint32_t position = first; position < end; ++position) {
        step_.add_row(tokens[position], position, true);
      }
      const float* logits = model_->forward(*stream_, *kv_, step_);
      const size_t count = step_.logit_rows.size() * config_.n_vocab;
      const float* found = device_->read_back(logits, count);
      model_->check_files();
      stream_->check_files();
      sink(first, end - first, found);
      ++steps_;
    }
  }

 private:
  // Shares the host's memory or the device's own.
  void make_plan(MemoryDemand& demand, const EngineOptions& options) {
    if (device_->shares_host_memory()) {
      demand.budget_bytes = ram_bytes_;
      plan_ = plan_memory(demand, config_);
    } else {
      budget_option_ = "--vram";
      const uint64_t free_bytes = device_->free_bytes();
      if (options.vram_bytes > free_bytes) {
        fail(
            ErrorKind::device, "--vram {}: {} are free on the GPU", size_text(options.vram_bytes),
            size_text(free_bytes));
      }
      demand.budget_bytes =
          options.vram_bytes > 0 ? options.vram_bytes : default_vram_budget(free_bytes);
      plan_ = plan_device_memory(demand, config_);
    }
    budget_bytes_ = demand.budget_bytes;
  }

  void open_stream(const EngineOptions& options, uint64_t embedding_bytes) {
    const WeightPlan& weights = model_->weight_plan();
    bool all_resident = plan_.ring_bytes == 0;
    StreamOptions stream{
        .resident_bytes = resident_budget(weights, *device_, plan_),
        .ring_bytes = all_resident ? 0 : std::max(plan_.ring_bytes, min_ring_bytes(weights)),
        .host_bytes = ram_for_streams(plan_, ram_bytes_, embedding_bytes),
        .disk_rate = options.disk_rate,
        .link_rate = options.link_rate,
        .holds_windows = plan_.limits.has_batches(),
        .source = options.source};
    link_rate_ = options.link_rate;
    disk_rate_ = options.disk_rate;
    stream_ = WeightStream::open(*gguf_, weights, *device_, stream);
  }

  void sweep(const std::vector<Chunk>& chunks, StepReport& report) {
    float* logits = model_->forward(*stream_, *kv_, step_);
    report.rows = step_.n_rows();
    pick_tokens(chunks, logits);
    model_->check_files();
    stream_->check_files();
    take_logits(chunks, logits, report);
    ++steps_;
  }

  // On a CPU rows share the memory's rate with the weights that they wait for: none are free.
  void learn_free_rows(const StepReport& report) {
    if (device_->shares_host_memory() || plan_.ring_bytes == 0) return;
    const StreamStats after = stream_->stats();
    const bool was_known = free_rows_.is_known();
    free_rows_.note(
        {.rows = report.rows,
         .prompt_rows = report.prefill_rows,
         .seconds = report.seconds,
         .traffic_s = traffic_seconds(streamed_before_, after, link_rate_, disk_rate_)});
    streamed_before_ = after;
    scheduler_->set_rows_beside_answers(free_rows_.rows());
    if (was_known || !free_rows_.is_known()) return;
    log_info(
        "a sweep computes about {} rows while its weights stream: beside answers prompts get no "
        "more of them",
        free_rows_.rows());
  }

  uint64_t kv_tokens() const { return static_cast<uint64_t>(plan_.n_kv_pages) * kKvPageTokens; }

  std::string too_long_text(const Sequence& sequence) const {
    const size_t n_prompt = sequence.request.prompt.size();
    if (n_prompt > kv_tokens()) {
      return format(
          "the prompt has {} tokens and the KV pages of {} {} hold {}: raise it, or choose --kv "
          "q8_0",
          n_prompt, budget_option_, size_text(budget_bytes_), kv_tokens());
    }
    return format(
        "prompt and answer have reached {} tokens and the KV pages of {} {} hold {}: raise it, "
        "choose --kv q8_0, or set max_tokens",
        sequence.n_tokens(), budget_option_, size_text(budget_bytes_), kv_tokens());
  }

  // Leaves to the device what needs no more than a token of a row.
  void pick_tokens(const std::vector<Chunk>& chunks, float* logits) {
    picks_->clear();
    if (!device_->can_pick()) return;
    uint32_t row = 0;
    uint32_t n_logits = 0;
    for (const Chunk& chunk : chunks) {
      row += chunk.n;
      while (n_logits < step_.logit_rows.size() && step_.logit_rows[n_logits] < row)
        ++n_logits;
      const Sequence& sequence = *chunk.sequence;
      const SequenceRequest& request = sequence.request;
      // The last position of a chunk chooses when nothing behind it is known.
      if (chunk.first + chunk.n < sequence.n_tokens() || *request.max_tokens == 0) continue;
      if (request.wants_logprobs || !TokenPicks::covers(request.sampling)) continue;
      picks_->add(n_logits - 1, request.sampling, sample_context(sequence));
    }
    picks_->choose(*device_, logits);
  }

  // Good until the next call.
  SampleContext sample_context(const Sequence& sequence) {
    const std::vector<uint32_t>& answer = sequence.answer.tokens();
    banned_ = sequence.answer.banned();
    for (const std::vector<uint32_t>& word : sequence.request.bad_words) {
      const size_t n_before = word.size() - 1;
      if (n_before <= answer.size() &&
          std::equal(
              word.begin(), word.end() - 1, answer.end() - static_cast<ptrdiff_t>(n_before))) {
        banned_.push_back(word.back());
      }
    }
    return {
        .prompt = sequence.request.prompt,
        .answer = answer,
        .banned = banned_,
        .wants_logprob = sequence.request.wants_logprobs,
        .n_top_logprobs = sequence.request.n_top_logprobs};
  }

  // Scores and samples in the order of the rows; ends what is finished.
  void take_logits(const std::vector<Chunk>& chunks, const float* logits, StepReport& report) {
    uint32_t next_logits = 0;
    uint32_t row = 0;
    for (const Chunk& chunk : chunks) {
      Sequence& sequence = *chunk.sequence;
      bool decodes = chunk.n == 1 && chunk.first >= sequence.request.prompt.size();
      (decodes ? report.decode_rows : report.prefill_rows) += chunk.n;
      report.members.push_back(sequence.request.handle);
      report.member_rows.push_back(chunk.n);
      ++sequence.sweeps;
      sequence.n_cached = chunk.first + chunk.n;
      FinishReason reason = FinishReason::none;
      std::string error = fault_text(chunk, row);
      if (!error.empty()) reason = FinishReason::error;
      for (uint64_t position = chunk.first; position < chunk.first + chunk.n; ++position, ++row) {
        bool has_logits =
            next_logits < step_.logit_rows.size() && step_.logit_rows[next_logits] == row;
        if (!has_logits || reason != FinishReason::none) {
          next_logits += has_logits ? 1 : 0;
          continue;
        }
        const uint32_t index = next_logits++;
        try {
          reason = picks_->has(index)
                       ? take_token(sequence, {.token = picks_->token(index), .top = {}}, report)
                       : take_row(sequence, position, row_of_logits(logits, index), report);
        } catch (const LogitsError& fault) {
          reason = FinishReason::error;
          error = fault.what();
          if (verifies_) error += ", and every layer is sound: the output matrix makes it";
        }
      }
      if (reason == FinishReason::none) continue;
      report.finished.push_back(result_of(sequence, reason, error));
      scheduler_->note_answer_length(sequence.answer.tokens().size());
      scheduler_->remove(&sequence);
    }
  }

  // What broke a chunk whose rows begin at `row` of the step; empty where all is sound.
  std::string fault_text(const Chunk& chunk, uint32_t row) const {
    const std::span<const NumericFault> faults = model_->numeric_faults();
    for (uint32_t i = 0; i < chunk.n && !faults.empty(); ++i) {
      const NumericFault& fault = faults[row + i];
      if (fault.place == NumericFault::Place::none) continue;
      const std::string place = fault.place == NumericFault::Place::embedding
                                    ? "the embedding"
                                    : format("layer {} of {}", fault.layer, config_.n_layers);
      return format(
          "{} gives NaN or infinity at position {} (layers count from 0)", place, chunk.first + i);
    }
    return "";
  }

  std::span<const float> row_of_logits(const float* logits, uint32_t index) {
    const size_t n_vocab = config_.n_vocab;
    return {device_->read_back(logits + index * n_vocab, n_vocab), n_vocab};
  }

  // The logits of one position: the next token's score where it is known, else its choice.
  FinishReason take_row(
      Sequence& sequence,
      uint64_t position,
      std::span<const float> logits,
      StepReport& report) {
    const SequenceRequest& request = sequence.request;
    uint64_t next = position + 1;
    if (next < sequence.n_tokens()) {
      uint32_t token = sequence.token_at(next);
      Sample scored = sampler_->score(logits, token, request.n_top_logprobs);
      bool of_prompt = next < request.prompt.size();
      auto& list = of_prompt ? sequence.prompt_logprobs : sequence.logprobs;
      if (of_prompt && list.empty())
        list.push_back({.id = request.prompt[0], .logprob = 0, .top = {}});
      list.push_back({.id = token, .logprob = scored.logprob, .top = std::move(scored.top)});
      // A resumed answer that was complete ends once its last token is scored.
      return next + 1 == sequence.n_tokens() ? sequence.answer.reason() : FinishReason::none;
    }
    if (*request.max_tokens == 0) return FinishReason::length;
    return take_token(
        sequence, sampler_->sample(logits, request.sampling, sample_context(sequence)), report);
  }

  // The next token of a sequence.
  FinishReason take_token(Sequence& sequence, Sample sample, StepReport& report) {
    const SequenceRequest& request = sequence.request;
    if (!sequence.has_first_token) {
      sequence.has_first_token = true;
      sequence.first_token = Clock::now();
    }
    FinishReason reason = sequence.answer.push(sample.token);
    report.new_tokens.emplace_back(request.handle, sample.token);
    if (request.wants_logprobs) {
      sequence.logprobs.push_back(
          {.id = sample.token, .logprob = sample.logprob, .top = std::move(sample.top)});
    }
    return reason;
  }

  SequenceResult result_of(Sequence& sequence, FinishReason reason, const std::string& error) {
    SequenceResult result;
    result.handle = sequence.request.handle;
    result.reason = reason;
    result.error = error;
    size_t kept = sequence.answer.n_kept_tokens();
    result.tokens.assign(
        sequence.answer.tokens().begin(),
        sequence.answer.tokens().begin() + static_cast<ptrdiff_t>(kept));
    result.text = sequence.answer.take_text();
    result.logprobs = std::move(sequence.logprobs);
    if (result.logprobs.size() > kept) result.logprobs.resize(kept);
    result.prompt_logprobs = std::move(sequence.prompt_logprobs);
    if (sequence.request.echo_logprobs && result.prompt_logprobs.empty()) {
      result.prompt_logprobs.push_back({.id = sequence.request.prompt[0], .logprob = 0, .top = {}});
    }
    result.n_prompt_tokens = sequence.request.prompt.size();
    result.n_shared_tokens = std::min(sequence.n_shared, result.n_prompt_tokens);
    result.n_answer_tokens = sequence.answer.tokens().size();
    result.sweeps = sequence.sweeps;
    Clock::time_point now = Clock::now();
    if (sequence.has_first_token) {
      result.prefill_s = seconds_between(sequence.admitted, sequence.first_token);
      result.decode_s = seconds_between(sequence.first_token, now);
    } else if (sequence.has_been_admitted) {
      result.prefill_s = seconds_between(sequence.admitted, now);
    }
    return result;
  }

  std::shared_ptr<const GgufModel> gguf_;
  std::unique_ptr<Device> device_;
  KvType kv_type_;
  bool verifies_;  // numbers, after every layer
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  uint32_t context_tokens_ = 0;
  uint64_t ram_bytes_ = 0;               // of the host
  uint64_t budget_bytes_ = 0;            // of the device
  const char* budget_option_ = "--ram";  // which option gave it
  MemoryPlan plan_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> kv_;           // outlives the sequences
  std::unique_ptr<WeightStream> stream_;  // after the model whose plan it reads
  std::unique_ptr<Scheduler> scheduler_;
  FreeRows free_rows_;
  StreamStats streamed_before_;  // of the last step
  double link_rate_ = 0;         // throttles, as in StreamOptions
  double disk_rate_ = 0;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<TokenPicks> picks_;
  std::vector<SequenceResult> ended_early_;
  std::vector<uint32_t> banned_;  // ids that the sequence at hand may not draw now
  Step step_;
  uint64_t steps_ = 0;
  uint64_t decode_tokens_ = 0;
  uint64_t prefill_tokens_ = 0;
  double step_s_ = 0;
};

}  // namespace

std::unique_ptr<Engine> Engine::open(
    std::shared_ptr<const GgufModel> model,
    std::unique_ptr<Device> device,
    const EngineOptions& options) {
  return std::make_unique<BatchingEngine>(std::move(model), std::move(device), options);
}

}  // namespace nightsweep
