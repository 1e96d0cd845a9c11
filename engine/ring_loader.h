// RingLoader: a thread that reads slices into a ring of bytes, in a fixed order, as far ahead as
// the ring has room. Knows files and memory; which slices are streamed, and what they mean, is
// WeightStream's.
//
// A slice lies in one piece of the ring. Each of its extents is read with the whole aligned blocks
// that cover it, at an address equally aligned, so that O_DIRECT reads land where operators read.
// Space is given in the order of the sequence and comes free in that order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/file_reader.h"
#include "engine/read_queue.h"
#include "engine/weights.h"

namespace nightsweep {

// What released space is filled with in debug builds: NaN as f16, bf16 and f32, and so as the
// scales of quantised blocks. A read that is missing shows as NaN.
inline constexpr std::byte kPoison{0xFF};
#ifdef NDEBUG
inline constexpr bool kPoisonsReleasedSpace = false;
#else
inline constexpr bool kPoisonsReleasedSpace = true;
#endif

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

// acquire() and release() are called by one thread.
class RingLoader {
 public:
  struct Stats {
    uint64_t read_bytes = 0;  // of slices that are complete, in file layout
    double wait_s = 0;        // of acquire()
    double read_busy_s = 0;
  };

  // `sequence`: what to read, in order; `is_cyclic`: again and again. `ring`: aligned to
  // kDirectAlignment, at least twice the largest slice. `reader`, the slices and `ring` must
  // outlive it; nobody else uses the reader meanwhile. bytes_per_s: a throttle; 0: none.
  RingLoader(
      FileReader& reader,
      std::span<std::byte> ring,
      const std::vector<const WeightSlice*>& sequence,
      bool is_cyclic,
      double bytes_per_s);
  // Waits for the reads in flight.
  ~RingLoader();
  RingLoader(const RingLoader&) = delete;
  RingLoader& operator=(const RingLoader&) = delete;

  // Waits until element `index` of the sequence is in the ring; where each extent's first byte
  // is, valid until release(index). Throws what has stopped the thread: Error(storage) or
  // Error(model).
  // REQUIRES: indices come in order (0, 1, ..., n-1, and so on if cyclic), and so much is released
  // that the ring can hold the element; what can never come is Error(internal), not a wait.
  const std::vector<std::byte*>& acquire(uint32_t index);
  // Space comes free in the order of the sequence: a lease that ends early waits for those before.
  void release(uint32_t index);

  Stats stats() const;

 private:
  enum class State { absent, reading, filled, leased, released };
  struct Element {
    const WeightSlice* slice = nullptr;
    uint64_t ring_bytes = 0;
    State state = State::absent;
    uint32_t n_reads_left = 0;
    uint64_t begin = 0;  // position in the ring
    std::vector<std::byte*> extents;
  };

  void run();
  bool place_next(ReadQueue& queue);
  bool can_place_next() const;
  bool can_never_come(const Element& element) const;

  FileReader& reader_;
  const std::span<std::byte> ring_;
  const bool is_cyclic_;
  const double bytes_per_s_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::condition_variable element_is_filled_;  // or error_ is set
  std::condition_variable space_is_free_;      // or is_stopping_ is set
  std::vector<Element> elements_;
  std::deque<uint32_t> in_ring_;  // elements that hold space, oldest first
  RingSpace space_;
  uint32_t next_to_place_ = 0;
  uint32_t next_to_acquire_ = 0;
  bool is_stopping_ = false;
  std::exception_ptr error_;
  Stats stats_;

  std::thread thread_;
};

// Bytes a second of the same reads as in a sweep, with nobody computing, in a fraction of a second.
double measure_disk_rate(
    FileReader& reader,
    std::span<std::byte> ring,
    const std::vector<const WeightSlice*>& sequence,
    double bytes_per_s);

// Reads of ReadQueue::kPieceBytes in flight. Four saturate the disks we measured; the rest hides
// the time in which a busy machine does not run the loader.
inline constexpr uint32_t kReadsInFlight = 8;

}  // namespace nightsweep
