#include "engine/resident_slices.h"

#include <algorithm>

#include "engine/placement.h"
#include "engine/ring_loader.h"
#include "engine/slice_views.h"

namespace nightsweep {

ResidentSlices::ResidentSlices(
    const WeightPlan& plan,
    Device& device,
    uint64_t budget_bytes,
    uint64_t piece_bytes)
    : plan_(plan), device_(device), slices_(plan.slices.size()) {
  const std::vector<bool> is_resident = choose_resident(plan, device, budget_bytes);
  // Every n-th slice to each of n pieces, so that what a dropped piece leaves is still spread.
  uint64_t total_bytes = 0;
  std::vector<uint32_t> chosen;
  for (uint32_t i = 0; i < plan.slices.size(); ++i) {
    if (!is_resident[i]) continue;
    chosen.push_back(i);
    total_bytes += packed_slice_bytes(plan.slices[i], device);
  }
  // Not more than slices: an empty piece would look like none.
  pieces_.resize(std::min<uint64_t>(chosen.size(), (total_bytes + piece_bytes - 1) / piece_bytes));
  for (size_t n = 0; n < chosen.size(); ++n) {
    const uint32_t slice = chosen[n];
    Piece& piece = pieces_[n % pieces_.size()];
    piece.slices.push_back(slice);
    piece.size_bytes += packed_slice_bytes(plan.slices[slice], device);
    for (const WeightExtent& extent : plan.slices[slice].extents) {
      slices_[slice].matrices.push_back(view_of(extent, nullptr));
      slices_[slice].matrices.back().layout = WeightLayout::packed;
    }
  }
  for (Piece& piece : pieces_)
    make(piece);
}

void ResidentSlices::make(Piece& piece) {
  piece.memory = device_.allocate(piece.size_bytes);
  ++n_made_;
  std::byte* at = piece.memory->data();
  for (uint32_t slice : piece.slices) {
    slices_[slice].home = at;
    const std::vector<WeightExtent>& extents = plan_.slices[slice].extents;
    for (size_t e = 0; e < extents.size(); ++e) {
      slices_[slice].matrices[e].data = at;
      at += packed_extent_bytes(extents[e], device_);
    }
  }
}

uint64_t ResidentSlices::size_bytes() const {
  uint64_t total = 0;
  for (size_t i = 0; i < n_made_; ++i)
    total += pieces_[i].size_bytes;
  return total;
}

bool ResidentSlices::holds_everything() const {
  return std::all_of(slices_.begin(), slices_.end(), [](const Slice& s) { return s.is_here; });
}

void ResidentSlices::fill(uint32_t slice, const std::vector<std::byte*>& extents, Pack pack) {
  std::byte* packed = slices_[slice].home;
  const std::vector<WeightExtent>& all = plan_.slices[slice].extents;
  for (size_t e = 0; e < all.size(); ++e) {
    (device_.*pack)(view_of(all[e], extents[e]), packed);
    packed += packed_extent_bytes(all[e], device_);
  }
  slices_[slice].is_here = true;
}

// Reads ahead into the staging space while it packs.
uint64_t ResidentSlices::load(FileReader& reader, std::span<std::byte> staging, double disk_rate) {
  StreamSchedule schedule(slices_.size());
  for (uint32_t i = 0; i < slices_.size(); ++i)
    schedule.set(i, 1, false);
  RingLoader loader(reader, staging, plan_.slices, schedule, {.bytes_per_s = disk_rate});
  for (uint32_t i = 0; i < slices_.size(); ++i) {
    fill(i, loader.acquire(i), &Device::pack);
    device_.synchronize();  // pack() may only be queued, and reads the staging space
    loader.release(i);
  }
  return loader.stats().filled_bytes;
}

void ResidentSlices::drop_last_piece() {
  Piece& piece = pieces_[--n_made_];
  for (uint32_t slice : piece.slices) {
    slices_[slice].home = nullptr;
    slices_[slice].is_here = false;
  }
  piece.memory.reset();
}

const std::vector<uint32_t>& ResidentSlices::restore_piece() {
  make(pieces_[n_made_]);
  return pieces_[n_made_ - 1].slices;
}

uint64_t ResidentSlices::dropped_piece_bytes() const {
  return n_made_ == pieces_.size() ? 0 : pieces_[n_made_].size_bytes;
}

}  // namespace nightsweep
