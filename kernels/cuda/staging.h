// Small tables of a step on their way to the GPU, without waiting for it.
//
// A ring of page-locked slots with the same ring on the GPU. What send() copied may be used by
// everything queued on the stream until the ring has come round, which takes kSlots times
// kSlotBytes. A copy costs the stream two small kernels (host_copy.h): tables of a step go in one,
// together(), and what one kernel reads once, and little of it (by one thread: each read crosses
// the link), leave() leaves in the slot.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <span>

#include "kernels/device.h"

namespace nightsweep::cuda {

class Staging {
 public:
  static constexpr size_t kSlots = 4;
  static constexpr size_t kSlotBytes = size_t{8} << 20;
  static constexpr size_t kMostLeftBytes = 16384;

  explicit Staging(cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Copies in order with the stream; `values` may change on return. Throws Error(internal) for more
  // than a slot holds.
  template <typename T>
  const T* send(std::span<const T> values) {
    return static_cast<const T*>(send_bytes(values.data(), values.size_bytes()));
  }
  // What send() is given within `send_all` goes in one copy, and may be used when this returns.
  template <typename SendAll>
  void together(const SendAll& send_all) {
    const Collecting collecting(*this);
    send_all();
    if (n_collecting_ == 1) copy_collected();
  }
  // send() to a place of the caller's, which begins at a multiple of kHostCopyAlignment.
  void send_to(const void* from, size_t size_bytes, std::byte* to);
  // send() for the kernel that is queued next, and for no other. Tables above kMostLeftBytes are
  // copied after all.
  template <typename T>
  const T* leave(std::span<const T> values) {
    return static_cast<const T*>(leave_bytes(values.data(), values.size_bytes()));
  }

 private:
  // Until it ends; the outermost counts.
  class Collecting {
   public:
    explicit Collecting(Staging& staging) : staging_(staging) { ++staging_.n_collecting_; }
    ~Collecting() { --staging_.n_collecting_; }
    Collecting(const Collecting&) = delete;
    Collecting& operator=(const Collecting&) = delete;

   private:
    Staging& staging_;
  };
  void copy_collected();
  const void* leave_bytes(const void* from, size_t size_bytes);
  // Puts it into a slot and returns its place in the ring.
  size_t put(const void* from, size_t size_bytes);
  const void* send_bytes(const void* from, size_t size_bytes);
  void next_slot();

  cudaStream_t stream_;
  std::unique_ptr<DeviceMemory> host_;
  std::unique_ptr<DeviceMemory> gpu_;
  std::array<cudaEvent_t, kSlots> left_{};  // what used a slot is over
  size_t slot_ = 0;
  size_t used_bytes_ = 0;
  uint32_t n_collecting_ = 0;
  // Of the slot, sent and not yet copied.
  size_t collected_begin_ = 0;
  size_t collected_end_ = 0;
};

}  // namespace nightsweep::cuda
