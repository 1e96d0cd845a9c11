#include "engine/placement.h"

#include <algorithm>
#include <numeric>

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

bool keeps_embedding(uint64_t ram_bytes, uint64_t embedding_bytes) {
  return embedding_bytes <= ram_bytes / 2;
}

uint64_t ram_for_streams(const MemoryPlan& plan, uint64_t ram_bytes, uint64_t embedding_bytes) {
  return plan.embedding_resident ? ram_bytes : ram_bytes - std::min(ram_bytes / 2, embedding_bytes);
}

HostShare share_host_memory(
    const std::vector<WeightSlice>& slices,
    const std::vector<bool>& streams,
    uint64_t memory_bytes,
    const std::string& source) {
  std::vector<uint64_t> sizes_bytes;  // 0: does not stream
  uint64_t largest_bytes = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const uint64_t size_bytes = ring_bytes_of(slices[i]);
    sizes_bytes.push_back(streams[i] ? size_bytes : 0);
    largest_bytes = std::max(largest_bytes, size_bytes);
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
  const bool must_keep_all = source == "pinned" || source == "registered";
  if (!must_keep_all && source != "auto") {
    share.is_kept.assign(slices.size(), false);
    return share;
  }
  share.is_kept = spread_resident(sizes_bytes, memory_bytes - share.ring_bytes);
  for (size_t i = 0; i < slices.size(); ++i)
    share.is_kept[i] = share.is_kept[i] && streams[i];
  if (must_keep_all && share.is_kept != streams) {
    fail(
        ErrorKind::device,
        "--source {}: {} of weights stream and --ram has room for {} beside its ring; give more "
        "--ram or --source auto",
        source, size_text(std::accumulate(sizes_bytes.begin(), sizes_bytes.end(), uint64_t{0})),
        size_text(memory_bytes - share.ring_bytes));
  }
  return share;
}

void check_source(const std::string& source, const DeviceSizes& device) {
  if (!device.shares_host_memory() || (source != "pinned" && source != "registered")) return;
  fail(
      ErrorKind::usage,
      "--source {}: a copy in RAM is what a GPU reads over its link; on the CPU weights are "
      "resident, or give --source auto, direct or mmap",
      source);
}

uint64_t
resident_budget(const WeightPlan& weights, const DeviceSizes& device, const MemoryPlan& plan) {
  return plan.ring_bytes == 0 ? packed_bytes(weights, device) : plan.resident_bytes;
}

Placement place_slices(
    const WeightPlan& weights,
    const DeviceSizes& device,
    const MemoryPlan& plan,
    uint64_t host_bytes,
    const std::string& source) {
  check_source(source, device);
  Placement placement;
  const std::vector<bool> is_resident =
      choose_resident(weights, device, resident_budget(weights, device, plan));
  std::vector<bool> streams(is_resident);
  streams.flip();
  HostShare share;
  const bool has_link = !device.shares_host_memory();
  if (has_link && std::find(streams.begin(), streams.end(), true) != streams.end()) {
    share = share_host_memory(weights.slices, streams, host_bytes, source);
    placement.host_ring_bytes = share.ring_bytes;
  }
  for (size_t i = 0; i < is_resident.size(); ++i) {
    const WeightSlice& slice = weights.slices[i];
    const bool is_kept = !share.is_kept.empty() && share.is_kept[i];
    placement.tiers.push_back(is_resident[i] ? Tier::resident : is_kept ? Tier::host : Tier::disk);
    if (is_resident[i]) {
      placement.resident_bytes += packed_slice_bytes(slice, device);
      continue;
    }
    if (has_link) placement.link_bytes += slice.size_bytes;
    if (is_kept) {
      placement.host_bytes += ring_bytes_of(slice);
    } else {
      placement.disk_bytes += slice.size_bytes;
    }
  }
  return placement;
}

}  // namespace nightsweep
