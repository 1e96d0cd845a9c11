// A night of equal jobs, sweep by sweep, as the scheduler makes them: decode rows first, then
// chunks of prompts, beside answers no more than cost nothing, oldest first, as many sequences as
// run at once.
#include <algorithm>
#include <deque>

#include "engine/forecast.h"

namespace nightsweep {

namespace {

// Sequences that got their first token in the same sweep.
struct Cohort {
  uint32_t count = 0;
  uint32_t answered = 0;
};

class Night {
 public:
  Night(const Forecast& forecast, const NightLoad& load)
      : forecast_(forecast), load_(load), max_rows_(forecast.plan().limits.max_rows) {}

  NightCost run() {
    waiting_ = load_.n_jobs;
    while (waiting_ > 0 || n_prefilling_ > 0 || n_decoding_ > 0)
      sweep();
    return cost_;
  }

 private:
  void sweep() {
    SweepLoad rows = decode_rows();
    const uint32_t n_ready = take_prompts(rows);
    const double taken_s = forecast_.sweep(rows).sweep_s();
    const double prefill_part =
        static_cast<double>(rows.prefill_rows) / (rows.prefill_rows + rows.decode_rows);
    cost_.prefill_s += taken_s * prefill_part;
    cost_.decode_s += taken_s * (1 - prefill_part);
    cost_.finish_s += taken_s;
    const bool is_tail = waiting_ == 0 && rows.decode_rows < forecast_.n_sequences();
    if (is_tail && rows.prefill_rows == 0) cost_.tail_s += taken_s;
    ++cost_.n_sweeps;
    give_tokens(n_ready);
  }

  SweepLoad decode_rows() const {
    SweepLoad rows;
    double context = 0;
    for (const Cohort& cohort : decoding_)
      context += static_cast<double>(cohort.count) * (load_.prompt_tokens + cohort.answered);
    rows.decode_rows = n_decoding_;
    if (n_decoding_ > 0) rows.decode_context = context / n_decoding_;
    rows.logit_rows = n_decoding_;
    return rows;
  }

  // Prompts that are complete behind this sweep.
  uint32_t take_prompts(SweepLoad& rows) {
    uint32_t n_ready = 0;
    rows.prefill_context = load_.prompt_tokens / 2.0;
    const bool has_prompts = n_prefilling_ > 0 || waiting_ > 0;
    const uint32_t most_rows = rows.decode_rows > 0 && has_prompts
                                   ? rows.decode_rows + forecast_.free_prompt_rows(rows)
                                   : max_rows_;
    while (rows.decode_rows + rows.prefill_rows < most_rows) {
      if (n_prefilling_ == 0) {
        if (waiting_ == 0 || n_decoding_ + n_ready >= forecast_.n_sequences()) break;
        --waiting_;
        n_prefilling_ = 1;
        n_prefilled_ = 0;
      }
      const uint32_t left = load_.prompt_tokens - n_prefilled_;
      const uint32_t taken = std::min(left, most_rows - rows.decode_rows - rows.prefill_rows);
      rows.prefill_rows += taken;
      n_prefilled_ += taken;
      if (n_prefilled_ < load_.prompt_tokens) break;
      n_prefilling_ = 0;
      ++n_ready;
    }
    rows.logit_rows += n_ready;
    return n_ready;
  }

  void give_tokens(uint32_t n_ready) {
    for (Cohort& cohort : decoding_)
      ++cohort.answered;
    if (n_ready > 0) decoding_.push_back({.count = n_ready, .answered = 1});
    n_decoding_ += n_ready;
    while (!decoding_.empty() && decoding_.front().answered >= load_.answer_tokens) {
      n_decoding_ -= decoding_.front().count;
      decoding_.pop_front();
    }
  }

  const Forecast& forecast_;
  const NightLoad load_;
  const uint32_t max_rows_;
  uint64_t waiting_ = 0;
  uint32_t n_prefilling_ = 0;  // 0 or 1: the oldest
  uint32_t n_prefilled_ = 0;   // of its prompt
  uint32_t n_decoding_ = 0;
  std::deque<Cohort> decoding_;
  NightCost cost_;
};

}  // namespace

NightCost Forecast::night(const NightLoad& load) const {
  // A long night is like itself: as many jobs again take as long again.
  const uint64_t piece = 8ULL * n_sequences_;
  NightCost cost;
  if (load.n_jobs <= 4 * piece) {
    cost = Night(*this, load).run();
  } else {
    NightLoad part = load;
    part.n_jobs = 2 * piece + load.n_jobs % piece;
    cost = Night(*this, part).run();
    part.n_jobs += piece;
    const NightCost more = Night(*this, part).run();
    const uint64_t n_pieces = (load.n_jobs - 2 * piece) / piece;
    cost.n_sweeps += n_pieces * (more.n_sweeps - cost.n_sweeps);
    const auto times = static_cast<double>(n_pieces);
    cost.prefill_s += times * (more.prefill_s - cost.prefill_s);
    cost.decode_s += times * (more.decode_s - cost.decode_s);
    cost.finish_s += times * (more.finish_s - cost.finish_s);
  }
  // The first sweep waits for every weight to come from the disk once.
  if (rates_.disk_rate > 0) {
    const double read_s = static_cast<double>(slices_.plan.streamable_bytes) / rates_.disk_rate;
    const double steady_s = prefill(load.prompt_tokens).sweep_s();
    cost.fill_s = std::max(0.0, read_s - steady_s);
    cost.finish_s += cost.fill_s;
  }
  return cost;
}

}  // namespace nightsweep
