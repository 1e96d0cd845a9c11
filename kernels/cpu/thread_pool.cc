#include "kernels/cpu/thread_pool.h"

#include <chrono>

#if defined(__x86_64__)
  #include <immintrin.h>
#endif

namespace nightsweep {
namespace {

constexpr auto kSpinTime = std::chrono::microseconds(50);

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until is_ready() holds or kSpinTime is over; says whether it holds.
template <typename Condition>
bool spin_until(Condition is_ready) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 64; ++i) {
      if (is_ready()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return is_ready();
}

constexpr uint64_t kTakenMask = 0xFFFFFFFF;

}  // namespace

ThreadPool::ThreadPool(uint32_t n_threads) {
  for (uint32_t thread = 1; thread < n_threads; ++thread) {
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_release);
  wakeups_.fetch_add(1, std::memory_order_release);
  wakeups_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
}

void ThreadPool::run_region(uint32_t n_chunks, const void* context, Call call) {
  n_chunks_ = n_chunks;
  context_ = context;
  call_ = call;
  n_finished_.store(0, std::memory_order_relaxed);
  const uint64_t region = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(region << 32 | n_chunks, std::memory_order_release);
  wakeups_.fetch_add(1, std::memory_order_release);
  wakeups_.notify_all();

  while (run_one_chunk(0)) {
  }
  const auto is_finished = [&] { return n_finished_.load(std::memory_order_acquire) == n_chunks; };
  if (spin_until(is_finished)) return;
  for (uint32_t seen = n_finished_.load(std::memory_order_acquire); seen != n_chunks;
       seen = n_finished_.load(std::memory_order_acquire)) {
    n_finished_.wait(seen, std::memory_order_acquire);
  }
}

void ThreadPool::work(uint32_t thread) {
  while (true) {
    const uint32_t seen = wakeups_.load(std::memory_order_acquire);
    while (run_one_chunk(thread)) {
    }
    if (stopping_.load(std::memory_order_acquire)) return;
    const bool woken = spin_until([&] { return wakeups_.load(std::memory_order_acquire) != seen; });
    if (!woken) wakeups_.wait(seen, std::memory_order_acquire);
  }
}

bool ThreadPool::run_one_chunk(uint32_t thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if ((ticket & kTakenMask) == 0) return false;
  } while (!ticket_.compare_exchange_weak(
      ticket, ticket - 1, std::memory_order_acquire, std::memory_order_acquire));
  // The taken ticket keeps its region open, so these belong to it.
  const uint32_t n_chunks = n_chunks_;
  call_(context_, n_chunks - static_cast<uint32_t>(ticket & kTakenMask), thread);
  // Once the last chunk counts as finished the caller may leave, and the pool may go with it; the
  // destructor joins, so `this` lives until work() returns.
  if (n_finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_chunks) {
    n_finished_.notify_one();
  }
  return true;
}

}  // namespace nightsweep
