// What the jobs of a batch ask of memory. Room for sequences that never come would be taken from
// weights, and each byte of those saves a byte of traffic a sweep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "queue/queue.h"
#include "runner/request.h"

namespace nightsweep {

struct Workload {
  uint32_t n_sequences = 0;
  // Prompt and answer of a sequence: the mean, answers by their limits.
  uint32_t typical_tokens = 0;
  uint32_t longest_tokens = 0;  // that one of them may reach
};

// None where so many jobs wait that any engine is full, or none.
std::optional<Workload> workload_of(
    Queue& queue,
    const std::string& batch,
    const std::string& model,
    const RequestMaker& maker);

}  // namespace nightsweep
