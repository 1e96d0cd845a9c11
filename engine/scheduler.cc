#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/free_rows.h"

namespace nightsweep {

namespace {

// A copy of fewer tokens, or a step's wait for them, costs more than it saves.
constexpr uint32_t kLeastCopiedTokens = 8;

// Of a prefix that is a page longer than the one of this hash.
uint64_t hash_of_longer(uint64_t hash, const PageTokens& tokens) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  for (uint32_t token : tokens) {
    hash = (hash ^ token) * kFactor;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

uint64_t Scheduler::likely_pages(const Sequence& sequence) const {
  // Twice the usual answer: an eviction costs a whole prefill, an idle page only a little.
  auto likely = static_cast<uint64_t>(2 * typical_answer_tokens_);
  const uint64_t prompt = sequence.request.prompt.size();
  const uint64_t most = sequence.request.max_tokens.value_or(limits_.context_tokens);
  // One whose answer is longer than usual needs at least its next token's.
  uint64_t tokens = std::max(prompt + std::min(most, likely), sequence.n_tokens() + 1);
  tokens = std::min({tokens, prompt + most, limits_.context_tokens});
  // Scored prompts without an answer are computed whole.
  const uint64_t pages = std::max(KvCache::pages_for_request(tokens), KvCache::pages_for(prompt));
  return std::max<uint64_t>(pages, sequence.pages.table().size());
}

void Scheduler::note_answer_length(uint64_t n_tokens) {
  constexpr double kMemory = 1.0 / 32;
  typical_answer_tokens_ += (static_cast<double>(n_tokens) - typical_answer_tokens_) * kMemory;
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  // Whose prompt is to be scored computes all of it.
  if (limits_.shares_prefixes && !sequence->request.echo_logprobs) {
    // The last position is always computed: it gives the next token.
    const uint64_t n_pages = (sequence->request.prompt.size() - 1) / kKvPageTokens;
    uint64_t hash = 0;
    for (uint64_t page = 0; page < n_pages; ++page) {
      hash = hash_of_longer(hash, sequence->page_tokens(page));
      sequence->prompt_pages.push_back(hash);
    }
  }
  waiting_.push_back(std::move(sequence));
}

void Scheduler::enter(std::unique_ptr<Sequence> sequence) {
  for (uint64_t page : sequence->prompt_pages)
    ++prompt_pages_[page];
  running_.push_back(std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::leave(std::vector<std::unique_ptr<Sequence>>::iterator place) {
  std::unique_ptr<Sequence> sequence = std::move(*place);
  running_.erase(place);
  for (uint64_t page : sequence->prompt_pages) {
    auto count = prompt_pages_.find(page);
    if (--count->second == 0) prompt_pages_.erase(count);
  }
  return sequence;
}

// Pages that several share count once.
void Scheduler::admit() {
  uint64_t promised = prompt_pages_.size();
  for (const auto& sequence : running_)
    promised += likely_pages(*sequence) - sequence->prompt_pages.size();
  while (!waiting_.empty() && running_.size() < limits_.max_sequences) {
    Sequence& next = *waiting_.front();
    const auto n_shared = std::count_if(
        next.prompt_pages.begin(), next.prompt_pages.end(),
        [&](uint64_t page) { return prompt_pages_.contains(page); });
    promised += likely_pages(next) - static_cast<uint64_t>(n_shared);
    // Somebody must run: alone, a sequence gets every page there is.
    if (promised > cache_.n_pages() && !running_.empty()) return;
    if (!next.has_been_admitted) {
      next.has_been_admitted = true;
      next.admitted = Clock::now();
    }
    enter(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Scheduler::evict_youngest() {
  std::unique_ptr<Sequence> youngest = leave(running_.end() - 1);
  youngest->pages.clear();
  youngest->n_cached = 0;
  youngest->was_evicted = true;
  waiting_.push_front(std::move(youngest));
  ++n_evictions_;
}

void Scheduler::note_shared(Sequence& sequence, uint32_t n_tokens) {
  sequence.n_cached += n_tokens;
  n_shared_tokens_ += n_tokens;
  if (!sequence.was_evicted) sequence.n_shared += n_tokens;
}

bool Scheduler::share_prefix(Sequence& sequence, bool has_rows) {
  KvPages& pages = sequence.pages;
  const auto is_at_next = [&] {
    return sequence.n_cached == uint64_t{pages.n_known()} * kKvPageTokens &&
           pages.n_known() == pages.table().size();
  };
  while (is_at_next()) {
    const uint32_t most = sequence.n_shareable(pages.n_known());
    if (most < kLeastCopiedTokens) return true;
    const PrefixIndex::Key key =
        pages.key_of_next(sequence.page_tokens(pages.n_known(), most), most);
    if (key.is_whole() && pages.share_next(key)) {
      note_shared(sequence, kKvPageTokens);
      continue;
    }
    const PrefixIndex::Beginning found = cache_.prefixes().find_beginning(key);
    const uint32_t n_later = cache_.prefixes().n_begun(key);
    // Behind a whole page there may be more to share.
    if (n_later == kKvPageTokens || n_later >= found.n_tokens + kLeastCopiedTokens) return false;
    if (!has_rows || found.n_tokens < kLeastCopiedTokens) return true;
    if (copy_beginning(sequence, found.page)) note_shared(sequence, found.n_tokens);
    return true;
  }
  return true;
}

// Into a page of its own; false: there is none.
bool Scheduler::copy_beginning(Sequence& sequence, uint32_t page) {
  const uint32_t n_free = cache_.n_free();
  cache_.add_holder(page);
  // The last free page would be taken for the tokens themselves: nobody is evicted for a copy.
  const bool was_last_free = n_free == 1 && cache_.n_free() == 0;
  const bool has_page = !was_last_free && make_room(sequence, sequence.n_cached + 1);
  if (has_page) cache_.copy_page(page, sequence.pages.table().back());
  cache_.give_back(page);
  return has_page;
}

// Notes what the pages hold when the step is done, and what they will hold that it works on.
void Scheduler::note_pages(const Chunk& chunk) {
  Sequence& sequence = *chunk.sequence;
  KvPages& pages = sequence.pages;
  const uint64_t end = chunk.first + chunk.n;
  const auto note_next = [&](uint32_t n_done, uint32_t n_begun) {
    const PageTokens tokens = sequence.page_tokens(pages.n_known(), n_begun);
    cache_.prefixes().note_begun(pages.key_of_next(tokens, n_begun));
    if (n_done >= kLeastCopiedTokens) pages.note_next(pages.key_of_next(tokens, n_done));
  };
  const auto first = [&] { return uint64_t{pages.n_known()} * kKvPageTokens; };
  while (first() + kKvPageTokens <= end)
    note_next(kKvPageTokens, kKvPageTokens);
  // An answer's tokens are noted when their page is whole: nobody is likely to want them before.
  if (end > sequence.request.prompt.size() && chunk.n == 1) return;
  const uint64_t n_begun = std::min<uint64_t>(kKvPageTokens, sequence.n_tokens() - first());
  note_next(static_cast<uint32_t>(end - first()), static_cast<uint32_t>(n_begun));
}

bool Scheduler::make_room(Sequence& sequence, uint64_t n_tokens) {
  while (!sequence.pages.grow_to(n_tokens)) {
    if (running_.back().get() == &sequence) return false;
    evict_youngest();
  }
  return true;
}

std::vector<Chunk> Scheduler::next_step(
    Step& step,
    std::vector<std::unique_ptr<Sequence>>& hopeless) {
  admit();
  std::vector<Chunk> chunks;
  uint32_t rows_left = limits_.step.max_rows;
  uint32_t logits_left = limits_.step.max_logit_rows;

  // Decode rows have their places before any prompt: nobody's answer waits for a long prompt.
  uint32_t decoding = 0;
  for (const auto& sequence : running_)
    decoding += sequence->n_pending() == 1 ? 1 : 0;
  rows_left -= std::min(rows_left, decoding);
  if (decoding > 0) {
    const uint32_t free_rows = rows_beside_answers_ - std::min(rows_beside_answers_, decoding);
    rows_left = std::min(rows_left, std::max(free_rows, FreeRows::kLeast));
  }
  logits_left -= std::min(logits_left, decoding);

  cache_.prefixes().begin_step();
  // Evictions shorten running_ behind `index`, never before it.
  for (size_t index = 0; index < running_.size(); ++index) {
    Sequence& sequence = *running_[index];
    bool decodes = sequence.n_pending() == 1;
    if (!decodes && limits_.shares_prefixes && !share_prefix(sequence, rows_left > 0)) continue;
    uint32_t n = 0;
    uint32_t n_logits = 0;
    if (decodes) {
      n = 1;
    } else {
      uint64_t most = std::min<uint64_t>(sequence.n_pending(), rows_left);
      while (n < most) {
        bool wants = sequence.wants_logits(sequence.n_cached + n);
        if (wants && n_logits == logits_left) break;
        n_logits += wants ? 1 : 0;
        ++n;
      }
    }
    if (n == 0) continue;
    if (!make_room(sequence, sequence.n_cached + n)) {
      // The youngest itself: it goes on with the pages it has, or steps back.
      uint64_t room = (sequence.pages.table().size() + cache_.n_free()) * kKvPageTokens;
      if (room > sequence.n_cached) {
        n = static_cast<uint32_t>(std::min<uint64_t>(n, room - sequence.n_cached));
        n_logits = std::min(n_logits, n);
        sequence.pages.grow_to(sequence.n_cached + n);
      } else if (index > 0) {
        evict_youngest();
        break;
      } else {
        hopeless.push_back(leave(running_.end() - 1));
        break;
      }
    }
    if (!decodes) {
      rows_left -= n;
      logits_left -= n_logits;
    }
    chunks.push_back({.sequence = &sequence, .first = sequence.n_cached, .n = n});
    if (limits_.shares_prefixes) note_pages(chunks.back());
  }
  cache_.run_copies();
  // No chunk is of an evicted sequence: they are made oldest first, and only younger ones go.
  for (const Chunk& chunk : chunks) {
    step.add_sequence(chunk.sequence->pages.table());
    for (uint64_t position = chunk.first; position < chunk.first + chunk.n; ++position) {
      step.add_row(
          chunk.sequence->token_at(position), static_cast<uint32_t>(position),
          chunk.sequence->wants_logits(position));
    }
  }
  return chunks;
}

std::unique_ptr<Sequence> Scheduler::remove(const Sequence* sequence) {
  auto is_it = [&](const std::unique_ptr<Sequence>& held) { return held.get() == sequence; };
  if (auto found = std::find_if(running_.begin(), running_.end(), is_it); found != running_.end()) {
    return leave(found);
  }
  if (auto found = std::find_if(waiting_.begin(), waiting_.end(), is_it); found != waiting_.end()) {
    std::unique_ptr<Sequence> taken = std::move(*found);
    waiting_.erase(found);
    return taken;
  }
  return nullptr;
}

std::unique_ptr<Sequence> Scheduler::remove(uint64_t handle) {
  for (const auto& sequence : running_) {
    if (sequence->request.handle == handle) return remove(sequence.get());
  }
  for (const auto& sequence : waiting_) {
    if (sequence->request.handle == handle) return remove(sequence.get());
  }
  return nullptr;
}

}  // namespace nightsweep
