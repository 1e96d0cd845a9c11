// MemoryPlan: how a memory budget is shared between weights, ring, KV pages and scratch.
// Pure arithmetic, no memory is touched.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/model.h"

namespace nightsweep {

struct MemoryDemand {
  uint64_t budget_bytes = 0;
  uint64_t weight_bytes = 0;     // all slices, in the device's packed layout
  uint64_t embedding_bytes = 0;  // the whole table; a row is read from the file otherwise
  uint64_t embedding_row_bytes = 0;
  uint64_t small_tensor_bytes = 0;  // norms and biases, always resident
  uint64_t kv_page_bytes = 0;       // one page of all layers
  uint32_t context_tokens = 0;
  uint32_t typical_tokens = 512;        // prompt and answer of one request, as far as one can tell
  uint32_t most_kv_pages = UINT32_MAX;  // that the work can fill
  uint64_t most_resident_bytes = UINT64_MAX;  // of weights, on a device with memory of its own
  uint32_t max_sequences = 0;                 // asked for; 0: choose
  uint32_t max_rows = 0;                      // asked for; 0: choose
  // What the device reserves for steps of these limits, where it has memory of its own.
  std::function<uint64_t(const StepLimits&)> reserve_bytes;
  // There too: what the largest window of weights takes packed, cut into slices of so many bytes.
  std::function<uint64_t(uint64_t max_slice_bytes)> window_bytes;
};

struct MemoryPlan {
  StepLimits limits;
  uint32_t max_sequences = 0;
  uint64_t max_slice_bytes = 0;
  uint64_t scratch_bytes = 0;
  uint64_t ring_bytes = 0;      // 0: everything is resident
  uint64_t resident_bytes = 0;  // for packed slices
  bool embedding_resident = false;
  uint32_t n_kv_pages = 0;
};

// Weights first, as long as every sequence still has room for a typical request: a byte of either
// saves one byte of traffic a sweep, and KV that no sequence fills saves nothing.
// Throws Error(device) that names the smallest budget that would do.
MemoryPlan plan_memory(const MemoryDemand& demand, const ModelConfig& config);

// The same for a device with memory of its own. What fits with room for a fair number of sequences
// is resident, with the embedding, and slices are whole groups; else slices are smaller and those
// for which no room is left stream. Steps are wide: as many rows as cost little, at once or in
// batches, whichever takes less memory. Throws Error(device) that says what is needed.
MemoryPlan plan_device_memory(const MemoryDemand& demand, const ModelConfig& config);

// Free memory of the device less a margin for the driver and everybody else.
uint64_t default_vram_budget(uint64_t free_bytes);

}  // namespace nightsweep
