// What a model asks of memory, in the terms of the planner. Needs no device.
#pragma once

#include "engine/gguf.h"
#include "engine/model_config.h"
#include "engine/plan.h"
#include "kernels/device.h"

namespace nightsweep {

// Weights, embedding, norms and KV pages; the caller adds budgets and limits. On a device with
// memory of its own `reserve_bytes` and `window_bytes` are set too, and refer to `gguf`, `config`
// and `device`, which must outlive it. Norms and biases stay; the embedding is read by rows and,
// where it is tied, its matrix streams as the head too.
MemoryDemand memory_demand(
    const GgufModel& gguf,
    const ModelConfig& config,
    const DeviceSizes& device,
    const KvShape& kv);

}  // namespace nightsweep
