#include "runner/workload.h"

#include <algorithm>
#include <variant>

#include "base/error.h"
#include "jobs/jsonl.h"

namespace nightsweep {

namespace {

// As many jobs as the largest engine has places.
constexpr uint32_t kMostJobs = 256;
// A limit beyond this is a precaution: few answers come near it.
constexpr uint64_t kLongAnswer = 512;

}  // namespace

std::optional<Workload> workload_of(
    Queue& queue,
    const std::string& batch,
    const std::string& model,
    const RequestMaker& maker) {
  const auto requests = queue.waiting_requests(batch, model, kMostJobs + 1);
  if (requests.size() > kMostJobs) return std::nullopt;
  uint64_t n_sequences = 0;
  uint64_t n_tokens = 0;
  uint64_t longest = 0;
  for (const WaitingRequest& waiting : requests) {
    Job job;
    try {
      job = job_from_text(waiting.request);
    } catch (const Error&) {
      continue;  // the worker gives it its error line
    }
    const auto made = maker.prompts(job, waiting.submitted_ms / 1000);
    const auto* prompts = std::get_if<PromptTokens>(&made);
    if (prompts == nullptr) continue;
    // Without a limit an answer may take the rest of the context.
    const auto limit = static_cast<uint64_t>(job.parameters.max_tokens.value_or(UINT32_MAX));
    for (const TokenIds& prompt : *prompts) {
      n_tokens += (prompt.size() + std::min(limit, kLongAnswer)) * job.parameters.n;
      longest = std::max(longest, prompt.size() + limit);
    }
    n_sequences += n_choices(job, *prompts);
  }
  if (n_sequences == 0) return std::nullopt;
  const auto clamped = [](uint64_t n) {
    return static_cast<uint32_t>(std::min<uint64_t>(n, UINT32_MAX));
  };
  return Workload{
      .n_sequences = clamped(n_sequences),
      .typical_tokens = clamped((n_tokens + n_sequences - 1) / n_sequences),
      .longest_tokens = clamped(longest)};
}

}  // namespace nightsweep
