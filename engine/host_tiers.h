// HostTiers: where the slices that a device streams stand in the host's memory.
//
//   registered   the page cache itself, locked in place: nothing is read by us
//   pinned       a page-locked copy, read once, while the first sweep runs
//   the rest     passes through a ring, from the disk, in every sweep
//
// Slices that stay are spread evenly among those that pass, so that the disk reads all the time.
// Slices that will be resident on the device pass here once, in the first sweep.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/file_reader.h"
#include "engine/gguf.h"
#include "engine/host_mapping.h"
#include "engine/kept_memory.h"
#include "engine/ring_loader.h"
#include "engine/stream_schedule.h"
#include "engine/weights.h"
#include "kernels/device.h"

namespace nightsweep {

// acquire() and release() are called by one thread, begin_sweep() and check_files() by another.
class HostTiers {
 public:
  struct Options {
    uint64_t memory_bytes = 0;  // kept slices and ring together, or what is registered
    double disk_rate = 0;       // throttle; 0: none
    // As in StreamOptions. "auto": registered where the page cache has the files and memory_bytes
    // holds them, else pinned as far as memory_bytes goes, else direct.
    std::string source = "auto";
    uint64_t first_sweep = 0;
  };

  // All must outlive it. Throws Error(device) when memory_bytes cannot hold the ring that the
  // largest slice needs, and for a forced source that does not work here.
  HostTiers(
      const GgufModel& model,
      const std::vector<WeightSlice>& slices,
      const StreamSchedule& schedule,
      Device& device,
      const Options& options,
      const FileReaderFactory& open_reader);
  ~HostTiers();
  HostTiers(const HostTiers&) = delete;
  HostTiers& operator=(const HostTiers&) = delete;

  void begin_sweep(uint64_t sweep);
  // Waits until slice `index` is in memory; the first byte of each extent, valid until
  // release(index). Throws as RingLoader::acquire() does.
  // REQUIRES: those that pass come in their order, and at most kMaxLeases are leased.
  const std::vector<std::byte*>& acquire(uint32_t index);
  void release(uint32_t index);
  static constexpr uint32_t kMaxLeases = 2;

  // Throws Error(model) when a file is not what it was at the start.
  void check_files() const { files_->check_unchanged(); }

  uint64_t kept_bytes() const { return kept_ == nullptr ? 0 : kept_->locked_bytes(); }
  uint64_t registered_bytes() const { return registered_bytes_; }
  RingLoader::Stats stats() const;
  double measured_disk_rate() const { return measured_disk_rate_; }
  std::string description() const;                       // of the way from the disk
  const std::string& reason() const { return reason_; }  // for these tiers; for people

 private:
  bool try_registered(const GgufModel& model, const Options& options);
  void open_loader(const GgufModel& model, const Options& options, const FileReaderFactory& open);

  const std::vector<WeightSlice>& slices_;
  const StreamSchedule& schedule_;
  Device& device_;
  double measured_disk_rate_ = 0;
  uint64_t registered_bytes_ = 0;
  std::string reason_;

  // Registered.
  FileSet mapped_files_;
  std::unique_ptr<HostMapping> mapping_;
  std::vector<std::vector<std::byte*>> mapped_;  // by slice

  // Pinned and direct; in the order of their use.
  std::unique_ptr<KeptMemory> kept_;
  std::unique_ptr<DeviceMemory> ring_;
  std::unique_ptr<FileReader> reader_;
  std::unique_ptr<RingLoader> loader_;

  const FileSet* files_ = nullptr;  // of either
};

}  // namespace nightsweep
