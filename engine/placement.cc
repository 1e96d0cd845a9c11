#include "engine/placement.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "engine/host_tiers.h"
#include "engine/slice_views.h"
#include "engine/weight_stream.h"

namespace nightsweep {

namespace {

// Slices that are leased, one that is read, one that is ahead.
constexpr uint64_t kRingSlices = HostTiers::kMaxLeases + 2;

}  // namespace

std::vector<bool>
choose_resident(const WeightPlan& plan, const DeviceSizes& device, uint64_t budget_bytes) {
  std::vector<uint64_t> sizes_bytes;
  sizes_bytes.reserve(plan.slices.size());
  for (const WeightSlice& slice : plan.slices)
    sizes_bytes.push_back(packed_slice_bytes(slice, device));
  return spread_resident(sizes_bytes, budget_bytes);
}

HostShare share_host_memory(const std::vector<const WeightSlice*>& slices, uint64_t memory_bytes) {
  std::vector<uint64_t> sizes_bytes;
  uint64_t largest_bytes = 0;
  for (const WeightSlice* slice : slices) {
    sizes_bytes.push_back(ring_bytes_of(*slice));
    largest_bytes = std::max(largest_bytes, sizes_bytes.back());
  }
  HostShare share;
  share.ring_bytes = align_up(kRingSlices * largest_bytes, kDirectAlignment);
  if (share.ring_bytes > memory_bytes) {
    fail(
        ErrorKind::device,
        "--ram: {} for weights that stream are too little: this model needs {} ({} of its largest "
        "slices); give more --ram",
        size_text(memory_bytes), size_text(share.ring_bytes), kRingSlices);
  }
  share.is_kept = spread_resident(sizes_bytes, memory_bytes - share.ring_bytes);
  return share;
}

uint64_t
resident_budget(const WeightPlan& weights, const DeviceSizes& device, const MemoryPlan& plan) {
  return plan.ring_bytes == 0 ? packed_bytes(weights, device) : plan.resident_bytes;
}

Placement place_slices(
    const WeightPlan& weights,
    const DeviceSizes& device,
    const MemoryPlan& plan,
    uint64_t host_bytes) {
  Placement placement;
  const std::vector<bool> is_resident =
      choose_resident(weights, device, resident_budget(weights, device, plan));
  std::vector<const WeightSlice*> streamed;
  for (size_t i = 0; i < is_resident.size(); ++i) {
    placement.tiers.push_back(is_resident[i] ? Tier::resident : Tier::disk);
    if (is_resident[i]) {
      placement.resident_bytes += packed_slice_bytes(weights.slices[i], device);
    } else {
      streamed.push_back(&weights.slices[i]);
    }
  }
  HostShare share;
  if (!device.shares_host_memory() && !streamed.empty()) {
    share = share_host_memory(streamed, host_bytes);
    placement.host_ring_bytes = share.ring_bytes;
  }
  size_t next = 0;  // of `streamed`
  for (size_t i = 0; i < is_resident.size(); ++i) {
    if (is_resident[i]) continue;
    const WeightSlice& slice = *streamed[next];
    if (!share.is_kept.empty()) {
      placement.link_bytes += slice.size_bytes;
      if (share.is_kept[next]) {
        placement.tiers[i] = Tier::host;
        placement.host_bytes += ring_bytes_of(slice);
      }
    }
    if (placement.tiers[i] == Tier::disk) placement.disk_bytes += slice.size_bytes;
    ++next;
  }
  return placement;
}

}  // namespace nightsweep
