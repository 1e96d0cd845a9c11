// HostTiers: where the slices that a device streams stand in the host's memory. Some stay there
// once they have been read; the others pass through a ring, from the disk, in every sweep.
//
// Slices that stay are spread evenly among those that pass, so that the disk reads all the time.
// They are read while the first sweep runs, not before it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/file_reader.h"
#include "engine/gguf.h"
#include "engine/ring_loader.h"
#include "engine/weights.h"
#include "kernels/device.h"

namespace nightsweep {

// Used by one thread.
class HostTiers {
 public:
  struct Options {
    uint64_t memory_bytes = 0;  // kept slices and ring together
    double disk_rate = 0;       // throttle; 0: none
    std::string source = "auto";
  };

  // `slices`: those that stream, in the order of a sweep. They and `device` must outlive it.
  // Throws Error(device) when memory_bytes cannot hold the ring that the largest slice needs.
  HostTiers(
      const GgufModel& model,
      const std::vector<const WeightSlice*>& slices,
      Device& device,
      const Options& options,
      const FileReaderFactory& open_reader);

  // Waits until slice `index` is in memory; the first byte of each extent, valid until
  // release(index). Throws as RingLoader::acquire() does.
  // REQUIRES: indices come in order, again and again, and at most kMaxLeases are leased.
  const std::vector<std::byte*>& acquire(uint32_t index);
  void release(uint32_t index);
  static constexpr uint32_t kMaxLeases = 2;

  uint64_t kept_bytes() const { return kept_bytes_; }
  uint64_t read_bytes() const;
  double read_busy_s() const;
  double measured_disk_rate() const { return measured_disk_rate_; }
  std::string description() const;  // of the way from the disk

 private:
  struct Place {
    bool is_kept = false;
    uint32_t element = 0;             // of the loader that brings it
    std::vector<std::byte*> extents;  // kept: once it has been read
  };
  // A loader with what it needs, in the order of their use.
  struct Tier {
    std::vector<const WeightSlice*> slices;
    std::unique_ptr<DeviceMemory> memory;
    std::unique_ptr<FileReader> reader;
    std::unique_ptr<RingLoader> loader;
  };

  std::vector<Place> places_;
  Tier kept_;
  Tier passing_;
  uint64_t kept_bytes_ = 0;
  double measured_disk_rate_ = 0;
};

}  // namespace nightsweep
