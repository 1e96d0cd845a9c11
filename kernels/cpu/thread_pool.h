// A small pool for short parallel regions: tens of thousands a second, each shared by all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace nightsweep {

// One caller, n_threads - 1 workers. Idle workers spin for some tens of microseconds, because the
// next region usually follows at once, and then sleep.
class ThreadPool {
 public:
  explicit ThreadPool(uint32_t n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t n_threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  // Calls body(chunk, thread) for each chunk in [0, n_chunks), in any order, on any thread; thread
  // is in [0, n_threads()). Returns when all have run. `body` must not throw. Call from one thread
  // only, and not from inside a body.
  template <typename Body>
  void run(uint32_t n_chunks, const Body& body) {
    if (n_chunks <= 1 || workers_.empty()) {
      for (uint32_t chunk = 0; chunk < n_chunks; ++chunk)
        body(chunk, 0U);
      return;
    }
    run_region(n_chunks, &body, [](const void* context, uint32_t chunk, uint32_t thread) {
      (*static_cast<const Body*>(context))(chunk, thread);
    });
  }

 private:
  using Call = void (*)(const void* context, uint32_t chunk, uint32_t thread);

  void run_region(uint32_t n_chunks, const void* context, Call call);
  void work(uint32_t thread);
  bool run_one_chunk(uint32_t thread);

  // High half: number of the region; low half: chunks not yet taken. A chunk is taken by
  // compare-and-swap, so a worker that slept through a region cannot touch the next one with stale
  // data, and the caller waits for taken chunks only, never for a sleeper to wake.
  alignas(64) std::atomic<uint64_t> ticket_ = 0;
  alignas(64) std::atomic<uint32_t> n_finished_ = 0;
  alignas(64) std::atomic<uint32_t> wakeups_ = 0;
  std::atomic<bool> stopping_ = false;

  // Of the current region; stable from its first ticket to its last finished chunk.
  uint32_t n_chunks_ = 0;
  const void* context_ = nullptr;
  Call call_ = nullptr;

  std::vector<std::thread> workers_;
};

}  // namespace nightsweep
