// RingLoader: a thread that reads the slices of a sweep, in their order, into a ring of bytes or
// to the place where a slice stays, as far ahead as there is room and no further than the end of
// the next sweep. Knows files and memory; which slices pass when is StreamSchedule's.
//
// A slice lies in one piece. Each of its extents is read with the whole aligned blocks that cover
// it, at an address equally aligned, so that O_DIRECT reads land where operators read. Space of the
// ring is given in the order of the sweeps and comes free in that order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/file_reader.h"
#include "engine/kept_memory.h"
#include "engine/poison.h"
#include "engine/read_queue.h"
#include "engine/stream_schedule.h"
#include "engine/weights.h"

namespace nightsweep {

// Ring bytes that a slice takes.
uint64_t ring_bytes_of(const WeightSlice& slice);

// Space of a ring in first-in, first-out order. Positions only grow; position p is byte
// p % capacity of the ring, and no piece is wrapped over its end.
class RingSpace {
 public:
  explicit RingSpace(uint64_t capacity_bytes) : capacity_(capacity_bytes) {}
  // Where a piece of this size would begin; false when there is no room now.
  bool find(uint64_t size_bytes, uint64_t& begin) const;
  void take(uint64_t begin, uint64_t size_bytes) { head_ = begin + size_bytes; }
  // Everything before this position is free.
  void free_until(uint64_t position);
  uint64_t offset_of(uint64_t position) const { return position % capacity_; }

 private:
  uint64_t capacity_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
};

// acquire() and release() are called by one thread, all else by any.
class RingLoader {
 public:
  // Of slices that are complete, in file layout.
  struct Stats {
    uint64_t read_bytes = 0;    // read again in every sweep
    uint64_t filled_bytes = 0;  // read once, to stay somewhere
    double wait_s = 0;          // of acquire()
    double read_busy_s = 0;
  };
  struct Options {
    uint64_t first_sweep = 0;
    double bytes_per_s = 0;  // a throttle; 0: none
    // Slices that stay, each read once and in memory of its own; null: none. Those it refuses pass
    // through the ring.
    KeptMemory* kept = nullptr;
  };

  // `ring`: aligned to kDirectAlignment, at least twice the largest slice that passes. All must
  // outlive it; nobody else uses the reader meanwhile.
  RingLoader(
      FileReader& reader,
      std::span<std::byte> ring,
      const std::vector<WeightSlice>& slices,
      const StreamSchedule& schedule,
      const Options& options);
  // Waits for the reads in flight.
  ~RingLoader();
  RingLoader(const RingLoader&) = delete;
  RingLoader& operator=(const RingLoader&) = delete;

  // The operators have come to this sweep: the next one may be read ahead.
  void begin_sweep(uint64_t sweep);
  // Waits until slice `index` is in memory; where each extent's first byte is, valid until
  // release(index). Throws what has stopped the thread: Error(storage), Error(model) or
  // Error(device).
  // REQUIRES: those that pass come in their order, and so much is released that the ring can hold
  // the slice; what can never come is Error(internal), not a wait.
  const std::vector<std::byte*>& acquire(uint32_t index);
  // Space comes free in the order of the sweep: a lease that ends early waits for those before.
  void release(uint32_t index);
  // There is more of the kept memory.
  void look_again();

  Stats stats() const;
  // Why the ring is not registered with the reader, for people; empty: it is.
  const std::string& why_not_registered() const { return registered_ring_.why_not(); }

 private:
  enum class State { absent, reading, filled, leased, released };
  struct Element {
    uint64_t ring_bytes = 0;
    State state = State::absent;
    bool is_kept = false;  // in memory of its own: `filled` for ever once it has been read
    uint32_t n_reads_left = 0;
    uint64_t sweep = 0;  // for which it was read
    uint64_t begin = 0;  // position in the ring
    std::vector<std::byte*> extents;
  };

  void run();
  bool find_next();
  bool find_room(std::byte*& into);
  bool can_place_next();
  bool place_next(ReadQueue& queue);
  bool can_never_come(const Element& element);
  void finish_read(uint32_t index);

  FileReader& reader_;
  const std::span<std::byte> ring_;
  // What is kept is read once: it would gain nothing.
  const RegisteredMemory registered_ring_;
  const std::vector<WeightSlice>& slices_;
  const StreamSchedule& schedule_;
  const double bytes_per_s_;
  KeptMemory* const kept_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::condition_variable element_is_filled_;  // or error_ is set
  std::condition_variable space_is_free_;      // or may be placed otherwise, or is_stopping_
  std::vector<Element> elements_;
  std::deque<uint32_t> in_ring_;  // elements that hold space, oldest first
  RingSpace space_;
  uint64_t sweep_;          // of the operators
  SweepPosition next_;      // to place
  uint64_t checked_sweep_;  // the files were looked at before it was read
  bool is_stopping_ = false;
  std::exception_ptr error_;
  Stats stats_;

  std::thread thread_;
};

// Bytes a second of the same reads as in this sweep of the schedule, with nobody computing, in a
// fraction of a second.
double measure_disk_rate(
    FileReader& reader,
    std::span<std::byte> ring,
    const std::vector<WeightSlice>& slices,
    const StreamSchedule& schedule,
    uint64_t sweep,
    double bytes_per_s);

// Reads of ReadQueue::kPieceBytes in flight. Four saturate the disks we measured; the rest hides
// the time in which a busy machine does not run the loader.
inline constexpr uint32_t kReadsInFlight = 8;

}  // namespace nightsweep
