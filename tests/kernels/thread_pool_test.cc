#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

namespace nightsweep {
namespace {

TEST(ThreadPool, every_chunk_runs_once_in_thousands_of_regions) {
  for (const uint32_t n_threads : {1U, 2U, 3U, 8U}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.n_threads(), n_threads);
    std::vector<uint32_t> counts(97);
    for (uint32_t region = 0; region < 3000; ++region) {
      const uint32_t n_chunks = region % 98;
      std::fill(counts.begin(), counts.end(), 0);
      pool.run(n_chunks, [&](uint32_t chunk, uint32_t thread) {
        counts[chunk] += thread < n_threads ? 1 : 1000;
      });
      ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), 0U), n_chunks);
      for (uint32_t chunk = 0; chunk < n_chunks; ++chunk)
        ASSERT_EQ(counts[chunk], 1U);
    }
  }
}

TEST(ThreadPool, what_a_region_wrote_is_seen_by_the_next_one_on_other_threads) {
  ThreadPool pool(3);
  std::vector<uint64_t> values(64, 1);
  std::vector<uint64_t> next(64);
  for (uint32_t region = 0; region < 2000; ++region) {
    pool.run(64, [&](uint32_t chunk, uint32_t) {
      next[chunk] = values[chunk] + values[(chunk + 1) % 64];
    });
    pool.run(64, [&](uint32_t chunk, uint32_t) { values[chunk] = next[chunk] % 1000003; });
  }
  // Equal neighbours stay equal, so all hold 2^2000 mod 1000003, taken step by step.
  uint64_t expected = 1;
  for (uint32_t region = 0; region < 2000; ++region)
    expected = 2 * expected % 1000003;
  for (const uint64_t value : values)
    EXPECT_EQ(value, expected);
}

TEST(ThreadPool, sleeping_workers_are_woken) {
  ThreadPool pool(2);
  for (uint32_t region = 0; region < 20; ++region) {
    // Longer than the workers spin.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    // Each chunk waits for the other, so both threads must be there.
    std::atomic<uint32_t> n_arrived = 0;
    std::atomic<bool> was_alone = false;
    pool.run(2, [&](uint32_t, uint32_t) {
      n_arrived.fetch_add(1);
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (n_arrived.load() < 2 && !was_alone.load()) {
        if (std::chrono::steady_clock::now() > deadline) was_alone = true;
        std::this_thread::yield();
      }
    });
    ASSERT_FALSE(was_alone.load());
  }
}

TEST(ThreadPool, an_idle_pool_ends) {
  for (uint32_t i = 0; i < 50; ++i)
    ThreadPool(3).run(5, [](uint32_t, uint32_t) {});
}

}  // namespace
}  // namespace nightsweep
