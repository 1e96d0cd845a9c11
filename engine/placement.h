// Placement: in which tier each slice of a model lives under a plan, and what a sweep then moves.
// Pure, by the same choices that WeightStream makes when it opens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "engine/weights.h"
#include "kernels/device.h"

namespace nightsweep {

// Where the bytes of a slice are when a sweep begins. On a device that shares the host's memory
// there is no `host`.
enum class Tier : uint8_t { resident, host, disk };

struct Placement {
  std::vector<Tier> tiers;      // by slice of the plan
  uint64_t resident_bytes = 0;  // packed, in the device's memory
  uint64_t host_bytes = 0;      // of slices that stay in the host's memory
  uint64_t host_ring_bytes = 0;
  // What one sweep moves, in file layout.
  uint64_t link_bytes = 0;  // from the host's memory into the device's own
  uint64_t disk_bytes = 0;
};

// Which slices stay in the device's memory under a budget for what they take packed.
std::vector<bool>
choose_resident(const WeightPlan& plan, const DeviceSizes& device, uint64_t budget_bytes);

// How the host's memory is shared among slices that stream.
struct HostShare {
  std::vector<bool> is_kept;  // by slice
  uint64_t ring_bytes = 0;    // through which the others pass
};
// Whether an embedding that is not resident is in the host's memory from the start; else rows stay
// there once they have been read.
bool keeps_embedding(uint64_t ram_bytes, uint64_t embedding_bytes);
// What of --ram is left for weights that stream beside the embedding.
uint64_t ram_for_streams(const MemoryPlan& plan, uint64_t ram_bytes, uint64_t embedding_bytes);

// `streams`: by slice; the others pass through the ring once, in the first sweep. `source`: as in
// StreamOptions; with "registered" for what is not. Throws Error(device) when memory_bytes cannot
// hold the ring that the largest slice needs, or not all of what "pinned" keeps.
HostShare share_host_memory(
    const std::vector<WeightSlice>& slices,
    const std::vector<bool>& streams,
    uint64_t memory_bytes,
    const std::string& source = "auto");

// Throws Error(usage) for a source that only a device with memory of its own has.
void check_source(const std::string& source, const DeviceSizes& device);

// Throws Error(device) as WeightStream::open() does. host_bytes: the host's memory for what
// streams, on a device with memory of its own. "auto" is taken as what it is when the page cache
// does not have the model.
Placement place_slices(
    const WeightPlan& weights,
    const DeviceSizes& device,
    const MemoryPlan& plan,
    uint64_t host_bytes,
    const std::string& source = "auto");

// What WeightStream gets for packed slices.
uint64_t
resident_budget(const WeightPlan& weights, const DeviceSizes& device, const MemoryPlan& plan);

}  // namespace nightsweep
