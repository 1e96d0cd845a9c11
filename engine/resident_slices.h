// ResidentSlices: the part of the weights that stays packed in the device's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/file_reader.h"
#include "engine/weights.h"
#include "kernels/device.h"

namespace nightsweep {

class ResidentSlices {
 public:
  // Chooses slices whose packed size is at most budget_bytes, spread evenly over the sweep. `plan`
  // and `device` must outlive it.
  ResidentSlices(const WeightPlan& plan, Device& device, uint64_t budget_bytes);

  // Reads and packs them; `staging` (aligned to kDirectAlignment, at least min_ring_bytes()) is
  // read into meanwhile. disk_rate: a throttle; 0: none.
  void load(FileReader& reader, std::span<std::byte> staging, double disk_rate);

  bool holds(uint32_t slice) const { return !matrices_[slice].empty(); }
  // Packed. REQUIRES: holds(slice), after load().
  const std::vector<MatrixView>& matrices(uint32_t slice) const { return matrices_[slice]; }
  uint64_t size_bytes() const { return size_bytes_; }
  // All others, in the order of a sweep.
  const std::vector<uint32_t>& streamed() const { return streamed_; }

 private:
  const WeightPlan& plan_;
  Device& device_;
  std::vector<std::vector<MatrixView>> matrices_;  // by slice of the plan; empty: streamed
  std::vector<uint32_t> resident_;
  std::vector<uint32_t> streamed_;
  uint64_t size_bytes_ = 0;
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace nightsweep
