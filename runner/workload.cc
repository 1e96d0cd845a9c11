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
    const auto limit = static_cast<uint64_t>(job.parameters.max_tokens.value_or(kLongAnswer));
    for (const TokenIds& prompt : *prompts)
      n_tokens += (prompt.size() + std::min(limit, kLongAnswer)) * job.parameters.n;
    n_sequences += n_choices(job, *prompts);
  }
  if (n_sequences == 0) return std::nullopt;
  return Workload{
      .n_sequences = static_cast<uint32_t>(std::min<uint64_t>(n_sequences, UINT32_MAX)),
      .typical_tokens = static_cast<uint32_t>((n_tokens + n_sequences - 1) / n_sequences)};
}

}  // namespace nightsweep
