#include "runner/workload.h"

#include <algorithm>
#include <variant>

#include "base/error.h"
#include "engine/kv_cache.h"
#include "jobs/jsonl.h"

namespace nightsweep {

namespace {

// So many fill any engine, and are not read twice.
constexpr uint32_t kMostJobs = 256;

uint64_t pages_of(const Job& job, const PromptTokens& prompts, uint64_t context_tokens) {
  // A prompt that is only scored is computed whole, its last token too.
  const uint64_t answer =
      job.parameters.max_tokens ? std::max<int64_t>(*job.parameters.max_tokens, 1) : context_tokens;
  uint64_t pages = 0;
  for (const TokenIds& prompt : prompts)
    pages += KvCache::pages_for_request(std::min(prompt.size() + answer, context_tokens + 1));
  return pages * static_cast<uint64_t>(job.parameters.n);
}

}  // namespace

uint32_t most_kv_pages(
    Queue& queue,
    const std::string& batch,
    const std::string& name,
    const PromptModel& model) {
  uint64_t pages = 0;
  const bool are_few = queue.each_waiting(batch, name, kMostJobs, [&](const auto& waiting) {
    try {
      const Job job = job_from_text(waiting.request);
      const auto made = model.maker().prompts(job, waiting.submitted_ms / 1000);
      if (const auto* prompts = std::get_if<PromptTokens>(&made)) {
        pages += pages_of(job, *prompts, model.context_tokens());
      }
    } catch (const Error&) {
      // The worker gives it its error line.
    }
  });
  if (!are_few) return UINT32_MAX;
  return static_cast<uint32_t>(std::clamp<uint64_t>(pages, 1, UINT32_MAX));
}

}  // namespace nightsweep
