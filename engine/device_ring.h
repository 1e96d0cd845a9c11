// DeviceRing: a thread that copies slices from the host's memory into a ring of bytes in the
// device's, in the order of the sweep, as far ahead as the ring has room and no further than the
// end of the next sweep.
//
// The waits, and who sees to them (see Device for the queues):
//   a copy overwrites ring bytes      after the last operator that reads them: the copies are held
//                                     back by the event that release() has recorded
//   an operator reads ring bytes      after all copies into them: acquire() holds the operators
//                                     back by the event recorded behind the copies
//   either is queued                  after the matching record() was called: a mutex, since
//                                     waiting for an event that was never recorded passes at once
//   host memory is read into again    after the copy out of it: the thread waits for the event
//                                     before it releases the slice to HostTiers
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/host_tiers.h"
#include "engine/read_queue.h"
#include "engine/ring_loader.h"
#include "engine/stream_schedule.h"
#include "engine/weights.h"
#include "kernels/device.h"

namespace nightsweep {

// acquire() and release() are called by the thread of the operators.
class DeviceRing {
 public:
  struct Stats {
    uint64_t copied_bytes = 0;
    double wait_s = 0;       // of acquire()
    double host_wait_s = 0;  // of the thread, for a slice to come into the host's memory
    double room_wait_s = 0;  // of the thread, for room in the ring
  };

  struct Options {
    uint64_t first_sweep = 0;
    double bytes_per_s = 0;  // a throttle; 0: none
  };

  // `ring`: the device's memory, at least twice the largest slice. All must outlive it.
  DeviceRing(
      Device& device,
      HostTiers& host,
      const std::vector<WeightSlice>& slices,
      const StreamSchedule& schedule,
      std::span<std::byte> ring,
      const Options& options);
  // Waits for the copies in flight.
  ~DeviceRing();
  DeviceRing(const DeviceRing&) = delete;
  DeviceRing& operator=(const DeviceRing&) = delete;

  // The operators have come to this sweep: the next one may be copied ahead. Called before the
  // sweep's first acquire().
  void begin_sweep(uint64_t sweep);
  // The first byte of each extent, in the device's memory; operators queued from now on may read
  // them. Throws what has stopped the thread.
  // REQUIRES: those that pass come in their order.
  const std::vector<std::byte*>& acquire(uint32_t index);
  // Operators queued from now on do not read it any more.
  void release(uint32_t index);

  Stats stats() const;
  // Ring bytes that a slice takes.
  static uint64_t bytes_of(const WeightSlice& slice);

 private:
  enum class State { absent, copying, filled, leased };
  struct Element {
    uint64_t ring_bytes = 0;
    State state = State::absent;
    uint64_t begin = 0;  // position in the ring
    std::vector<std::byte*> extents;
    std::unique_ptr<DeviceEvent> filled;
    std::unique_ptr<DeviceEvent> used;
  };
  // Ring bytes that were given back, and by whom.
  struct Freed {
    uint64_t begin = 0;
    uint32_t index = 0;
  };

  void run();
  bool can_place_next();
  const DeviceEvent* place_next();
  void copy(uint32_t index);
  void end_host_leases(size_t most);

  Device& device_;
  HostTiers& host_;
  const std::vector<WeightSlice>& slices_;
  const StreamSchedule& schedule_;
  const std::span<std::byte> ring_;
  RateLimit rate_;
  std::deque<uint32_t> host_leases_;  // the thread's own; oldest first

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::condition_variable element_is_filled_;  // or error_ is set
  std::condition_variable space_is_free_;      // or is_stopping_ is set
  std::vector<Element> elements_;
  std::deque<uint32_t> in_ring_;  // elements that hold space, oldest first
  std::deque<Freed> freed_;       // oldest first
  RingSpace space_;
  uint64_t sweep_;      // of the operators
  SweepPosition next_;  // to place
  bool is_stopping_ = false;
  std::exception_ptr error_;
  Stats stats_;

  std::thread thread_;
};

}  // namespace nightsweep
