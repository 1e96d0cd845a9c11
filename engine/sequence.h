// Sequence: one answer on its way. The scheduler moves it, the engine feeds it.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/answer.h"
#include "engine/engine.h"
#include "engine/kv_cache.h"

namespace nightsweep {

using Clock = std::chrono::steady_clock;

struct Sequence {
  Sequence(SequenceRequest asked, AnswerText text, KvCache& cache)
      : request(std::move(asked)), answer(std::move(text)), pages(cache) {}

  SequenceRequest request;
  AnswerText answer;
  KvPages pages;
  uint64_t n_cached = 0;                     // positions whose keys and values are in the pages
  uint64_t n_shared = 0;                     // of these, computed by others, until an eviction
  std::vector<uint64_t> prompt_pages;        // hash of each prefix of whole pages, to count them
  std::vector<AnswerToken> logprobs;         // one an answer token, if asked for
  std::vector<AnswerToken> prompt_logprobs;  // one a prompt token, if asked for
  uint64_t sweeps = 0;
  Clock::time_point admitted;
  Clock::time_point first_token;
  bool was_evicted = false;
  bool has_been_admitted = false;
  bool has_first_token = false;

  uint64_t n_tokens() const { return request.prompt.size() + answer.tokens().size(); }
  uint64_t n_pending() const { return n_tokens() - n_cached; }
  uint32_t token_at(uint64_t position) const {
    return position < request.prompt.size() ? request.prompt[position]
                                            : answer.tokens()[position - request.prompt.size()];
  }
  // Whether the logits of this position are wanted: the last one gives the next token, earlier
  // ones score tokens that are known already (echo, an answer that was resumed).
  bool wants_logits(uint64_t position) const {
    uint64_t next = position + 1;
    if (next == n_tokens()) return true;
    if (next < request.prompt.size()) {
      return request.echo_logprobs && prompt_logprobs.size() <= next;
    }
    return request.wants_logprobs && logprobs.size() <= next - request.prompt.size();
  }
  // The first n tokens of a page. REQUIRES: they are there.
  PageTokens page_tokens(uint64_t page, uint32_t n = kKvPageTokens) const {
    PageTokens tokens{};
    for (uint32_t i = 0; i < n; ++i)
      tokens[i] = token_at(page * kKvPageTokens + i);
    return tokens;
  }
  // How many first tokens of a page somebody else may have computed: no logits of them are wanted.
  uint32_t n_shareable(uint64_t page) const {
    const uint64_t first = page * kKvPageTokens;
    uint32_t n = 0;
    while (n < kKvPageTokens && first + n < n_tokens() && !wants_logits(first + n))
      ++n;
    return n;
  }
};

}  // namespace nightsweep
