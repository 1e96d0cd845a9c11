#include "engine/resident_slices.h"

#include "engine/ring_loader.h"
#include "engine/slice_views.h"

namespace nightsweep {

ResidentSlices::ResidentSlices(const WeightPlan& plan, Device& device, uint64_t budget_bytes)
    : plan_(plan), device_(device), matrices_(plan.slices.size()) {
  std::vector<uint64_t> sizes_bytes;
  sizes_bytes.reserve(plan.slices.size());
  for (const WeightSlice& slice : plan.slices)
    sizes_bytes.push_back(packed_slice_bytes(slice, device));
  const std::vector<bool> is_resident = spread_resident(sizes_bytes, budget_bytes);
  for (uint32_t i = 0; i < plan.slices.size(); ++i) {
    (is_resident[i] ? resident_ : streamed_).push_back(i);
    if (!is_resident[i]) continue;
    size_bytes_ += sizes_bytes[i];
    for (const WeightExtent& extent : plan.slices[i].extents)
      matrices_[i].push_back(view_of(extent, nullptr));
  }
}

// Reads ahead into the staging space while it packs.
void ResidentSlices::load(FileReader& reader, std::span<std::byte> staging, double disk_rate) {
  if (resident_.empty()) return;
  memory_ = device_.allocate(size_bytes_);
  std::byte* packed = memory_->data();
  std::vector<const WeightSlice*> sequence;
  sequence.reserve(resident_.size());
  for (uint32_t slice : resident_)
    sequence.push_back(&plan_.slices[slice]);

  RingLoader loader(reader, staging, sequence, false, disk_rate);
  for (uint32_t i = 0; i < resident_.size(); ++i) {
    const std::vector<std::byte*>& data = loader.acquire(i);
    const std::vector<WeightExtent>& extents = sequence[i]->extents;
    for (size_t e = 0; e < extents.size(); ++e) {
      MatrixView& view = matrices_[resident_[i]][e];
      device_.pack(view_of(extents[e], data[e]), packed);
      view.layout = WeightLayout::packed;
      view.data = packed;
      packed += packed_extent_bytes(extents[e], device_);
    }
    device_.synchronize();  // pack() may only be queued, and reads the staging space
    loader.release(i);
  }
}

}  // namespace nightsweep
