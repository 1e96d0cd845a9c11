// What the jobs of a batch can ask of memory. Keys and values that nobody fills are taken from
// weights, and each byte of those saves a byte of traffic a sweep.
#pragma once

#include <cstdint>
#include <string>

#include "queue/queue.h"
#include "runner/model_source.h"

namespace nightsweep {

// Pages that all jobs of the batch which wait for the model, by this name, can fill together: each
// choice its prompt and the most that its answer may become. UINT32_MAX where more than 256 wait.
uint32_t most_kv_pages(
    Queue& queue,
    const std::string& batch,
    const std::string& name,
    const PromptModel& model);

}  // namespace nightsweep
