// WeightStream: makes the slices of a sweep appear in the device's memory, one after another.
//
//   file extent ──O_DIRECT, io_uring──> byte ring ──> operators read it where it lies
//   resident slices: come the same way in the first sweep, are packed, and stay
//
// Resident and streamed slices are interleaved over the depth of the model, so that the disk
// reads all the time while resident slices compute. The ring is a ring of bytes in the order of
// the sweep; reading ahead goes on over the end of a sweep into the next one.
//
// acquire() is called by one thread, in the order of the plan; a loader thread fills the ring.
// A lease's space is given back when it ends. A failed read (I/O error, end of file, file changed)
// is raised from acquire() as Error(storage) or Error(model) with file, offset and reason; nothing
// that came of a sweep may be believed before check_files() has passed behind it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/file_reader.h"
#include "engine/weights.h"
#include "kernels/device.h"

namespace nightsweep {

struct StreamOptions {
  uint64_t resident_bytes = 0;  // for packed resident slices; at least packed_bytes(): all
  uint64_t ring_bytes = 0;      // in the device's memory; at least min_ring_bytes() if any streams
  // Only where the device's memory is not the host's: for slices that stay in the host's memory,
  // as they are in the file, and the ring through which the others pass from the disk.
  uint64_t host_bytes = 0;
  double disk_rate = 0;  // throttle in bytes a second; 0: none
  double link_rate = 0;  // the same of the way into the device's memory
  // Leases of all slices of a window at once: what streams is repacked into a scratch that holds
  // the largest window, in place of the largest slice.
  bool holds_windows = false;
  // Where slices that stream come from; a forced one that does not work is Error(device).
  //   auto         the best that works: registered, pinned, direct; says aloud when it falls back
  //   pinned       a page-locked copy in host_bytes          only where the device's memory is not
  //   registered   the page cache, locked in place           the host's
  //   direct       the disk, with O_DIRECT, in every sweep
  //   mmap         copies from a mapping of the files, whatever the page cache makes of it
  // "uring" and "pread" are direct with one way of reading, for tests.
  std::string source = "auto";
  // The resident part of a device is made and given back in pieces of about this size.
  uint64_t resident_piece_bytes = uint64_t{256} << 20;
  // How often a device's free memory is looked at, at the begin of a sweep.
  std::chrono::milliseconds look_at_memory_every{1000};
};

struct StreamStats {
  uint64_t resident_bytes = 0;    // packed, in memory
  uint64_t filled_bytes = 0;      // read once so far, to be resident or kept
  uint64_t streamed_bytes = 0;    // read again and again so far, reading ahead included
  uint64_t host_bytes = 0;        // kept in page-locked memory of the host
  uint64_t registered_bytes = 0;  // of the page cache, locked in place
  uint64_t copied_bytes = 0;      // from the host's memory into the device's so far
  uint32_t n_shrinks = 0;         // times that memory was given back to others
  uint32_t n_grows = 0;           // pieces of it that were taken again
  uint64_t sweeps = 0;
  double wait_s = 0;  // time acquire() waited: for the disk, or on a GPU until a copy was queued
  double read_busy_s = 0;         // time in which at least one read was in flight
  double copy_wait_s = 0;         // copies into the device waited for data of the host's memory
  double ring_wait_s = 0;         // the same, for room in the device's ring
  double measured_disk_rate = 0;  // bytes a second, measured at the start; 0: not measured
  double measured_link_rate = 0;
  // "io_uring O_DIRECT", "pread O_DIRECT", "pread buffered", "mmap", "registered page cache",
  // "resident"
  std::string source;
  std::string source_reason;  // why not a better one, for people; may be empty
};

// Memory that all slices take when packed, each on its own cache lines.
uint64_t packed_bytes(const WeightPlan& plan, const DeviceSizes& device);
// The smallest ring: one slice computes while the next is read. A caller whose oldest lease is k
// slices behind the one that it acquires needs (k + 2) / 2 times as much.
uint64_t min_ring_bytes(const WeightPlan& plan);

class WeightStream {
 public:
  // The matrices of a slice, in the order of its extents. Ends the lease when destroyed, before
  // the stream. Streamed matrices are in file layout and begin at any byte that the file's
  // alignment allows.
  class Lease {
   public:
    Lease(WeightStream* stream, uint32_t slice) : stream_(stream), slice_(slice) {}
    ~Lease();
    Lease(Lease&& other) noexcept : stream_(other.stream_), slice_(other.slice_) {
      other.stream_ = nullptr;
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Lease& operator=(Lease&&) = delete;
    const std::vector<MatrixView>& matrices() const;

   private:
    WeightStream* stream_;
    uint32_t slice_;
  };

  // Measures the disk before it returns, and begins to read. `model`, `plan` and `device` must
  // outlive it. Throws Error(device) for a ring that is too small or a source that does not work,
  // Error(model) or Error(storage) from reading. Tests pass a reader of their own.
  static std::unique_ptr<WeightStream> open(
      const GgufModel& model,
      const WeightPlan& plan,
      Device& device,
      const StreamOptions& options,
      const FileReaderFactory& open_reader = open_file_reader);
  virtual ~WeightStream() = default;

  // Leases may overlap as far as the ring holds them; on a device with memory of its own only with
  // holds_windows, and those of a window end before one of the next is acquired.
  // REQUIRES: slices are acquired in the order 0, 1, ..., n-1, 0, 1, ...
  Lease acquire(uint32_t slice);
  // Called by the thread that acquires.
  virtual StreamStats stats() const = 0;
  // Throws Error(model) when a file that is still read is not what it was at the start.
  virtual void check_files() const = 0;

 protected:
  explicit WeightStream(const WeightPlan& plan) : plan_(plan) {}
  virtual void begin_sweep(uint64_t sweep) = 0;
  // Makes the matrices of the slice whose turn it is readable.
  virtual void fetch(uint32_t slice) = 0;
  virtual const std::vector<MatrixView>& matrices(uint32_t slice) const = 0;
  virtual void release(uint32_t slice) = 0;

  const WeightPlan& plan_;
  uint64_t sweeps_ = 0;  // whole ones

 private:
  uint32_t next_slice_ = 0;
};

}  // namespace nightsweep
