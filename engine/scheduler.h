// Scheduler: who runs, and which rows make the next step.
//
// Decode rows first, then prompt chunks, oldest sequence first; beside decode rows no more of them
// than a sweep computes while its weights stream. A sequence is admitted when the pages that all
// running ones are likely to need leave room for it. When pages run short all the same, the
// sequence admitted last gives its pages up and waits at the head of the queue; its tokens are
// kept, so it goes on later with the same bits.
//
// Equal prefixes are computed once, by whoever comes first. Whole pages the others take over within
// the same step, since in every layer a row's keys and values are stored before later rows attend
// to them. Where a step ends in the middle of such a page the others wait for it. Of a page that is
// equal in its first tokens only they take a copy, once it has been computed in a step before.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/model.h"
#include "engine/sequence.h"
#include "engine/step.h"

namespace nightsweep {

// One sequence's rows in a step: positions [first, first + n).
struct Chunk {
  Sequence* sequence = nullptr;
  uint64_t first = 0;
  uint32_t n = 0;
};

class Scheduler {
 public:
  struct Limits {
    uint32_t max_sequences = 0;
    StepLimits step;
    uint64_t context_tokens = 0;
    bool shares_prefixes = true;
  };
  Scheduler(KvCache& cache, const Limits& limits) : cache_(cache), limits_(limits) {}

  void add(std::unique_ptr<Sequence> sequence);
  // Fills `step`; chunks in the order of its rows. Sequences that can never fit, even alone, are
  // moved to `hopeless`.
  std::vector<Chunk> next_step(Step& step, std::vector<std::unique_ptr<Sequence>>& hopeless);
  // Takes a sequence out; null when there is none with this handle.
  std::unique_ptr<Sequence> remove(uint64_t handle);
  std::unique_ptr<Sequence> remove(const Sequence* sequence);

  bool is_empty() const { return running_.empty() && waiting_.empty(); }
  size_t n_active() const { return running_.size() + waiting_.size(); }
  size_t n_running() const { return running_.size(); }
  // The running set is full, or somebody waits already for pages.
  bool wants_more() const { return waiting_.empty() && running_.size() < limits_.max_sequences; }
  uint64_t n_evictions() const { return n_evictions_; }
  // Tokens that were not computed, since another sequence, or this one before it was evicted, had
  // computed the same beginning.
  uint64_t n_shared_tokens() const { return n_shared_tokens_; }
  // Rows of a step with decode rows; prompts may take FreeRows::kLeast of them in any case.
  void set_rows_beside_answers(uint32_t rows) { rows_beside_answers_ = rows; }
  // Learns how long answers are, for the likely need of those to come.
  void note_answer_length(uint64_t n_tokens);

 private:
  uint64_t likely_pages(const Sequence& sequence) const;
  void admit();
  // Every way into running_ and out of it.
  void enter(std::unique_ptr<Sequence> sequence);
  std::unique_ptr<Sequence> leave(std::vector<std::unique_ptr<Sequence>>::iterator place);
  // False: it waits, since others compute tokens in this step that it can have in the next.
  bool share_prefix(Sequence& sequence, bool has_rows);
  bool copy_beginning(Sequence& sequence, uint32_t page);
  void note_shared(Sequence& sequence, uint32_t n_tokens);
  void note_pages(const Chunk& chunk);
  // Room for positions below n_tokens; evicts younger sequences. False: not even then.
  bool make_room(Sequence& sequence, uint64_t n_tokens);
  void evict_youngest();

  KvCache& cache_;
  Limits limits_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // by admission, oldest first
  // Pages of prompts of running_ that may be shared, by hash: how many have each.
  std::unordered_map<uint64_t, uint32_t> prompt_pages_;
  uint64_t n_evictions_ = 0;
  uint64_t n_shared_tokens_ = 0;
  double typical_answer_tokens_ = 256;
  uint32_t rows_beside_answers_ = UINT32_MAX;
};

}  // namespace nightsweep
