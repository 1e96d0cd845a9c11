// KeptMemory: page-locked memory of the host for slices that stay there, made in pieces by a thread
// of its own while the first slices are already being read into it.
//
// Locking 40 GB takes as long as reading a third of them, so nobody waits for all of it. A piece
// that cannot be had, or that would leave other programs too little, ends the making: the slices
// behind it are `refused` and pass through the ring instead.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/host_memory.h"
#include "kernels/device.h"

namespace nightsweep {

class KeptMemory {
 public:
  struct Options {
    bool must_keep_all = false;  // then find() throws in place of refusing
    uint64_t margin_bytes = kHostMarginBytes;
    uint64_t piece_bytes = uint64_t{256} << 20;  // slices are not cut: one may be larger
    std::function<uint64_t()> available_bytes = available_ram;
  };
  enum class State : uint8_t { pending, ready, refused };

  // sizes_bytes: by slice; 0: it is not kept. `device` must outlive it.
  KeptMemory(Device& device, const std::vector<uint64_t>& sizes_bytes, Options options);
  ~KeptMemory() { stop(); }
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  // Begins to make pieces, in the order of the slices. `on_change` is called by the thread when
  // slices have become ready or refused.
  void start(std::function<void()> on_change);
  // Makes no more; on_change is not called after it.
  void stop();

  // Whether it was asked to; thread-safe.
  bool keeps(uint32_t slice) const { return places_[slice].is_wanted; }
  // Where a kept slice has its place, aligned to kDirectAlignment. Thread-safe.
  // Throws Error(device) for one that is refused and must be kept.
  State find(uint32_t slice, std::byte*& place) const;

  uint64_t wanted_bytes() const { return wanted_bytes_; }
  uint64_t locked_bytes() const;  // so far

 private:
  struct Piece {
    uint64_t size_bytes = 0;
    std::unique_ptr<DeviceMemory> memory;
  };
  struct Place {
    bool is_wanted = false;
    uint32_t piece = 0;
    uint64_t offset = 0;
  };

  void run();
  std::string make(Piece& piece);

  Device& device_;
  const Options options_;
  std::vector<Place> places_;  // by slice
  uint64_t wanted_bytes_ = 0;
  std::function<void()> on_change_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Piece> pieces_;
  size_t n_ready_ = 0;
  std::string why_refused_;  // not empty: the pieces from n_ready_ on are refused
  bool is_stopping_ = false;

  std::thread thread_;
};

}  // namespace nightsweep
