// Attention of a step: cuts it into tasks of the kernel and shares them among the threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace nightsweep::cpu {

class Attention {
 public:
  Attention(const KernelTable& kernels, ThreadPool& pool) : kernels_(&kernels), pool_(&pool) {}

  // As Device::store_kv and Device::attention.
  void store(const KvLayer& layer, const StepRows& rows, const float* k, const float* v);
  void run(
      const KvLayer& layer,
      const StepRows& rows,
      const float* q,
      uint32_t n_heads,
      float scale,
      float* out);

 private:
  // Some rows of one sequence, with some query heads of each KV head.
  struct Tile {
    uint32_t first_row;
    uint32_t n_rows;
    uint32_t first_head;  // of the query heads of a KV head
    uint32_t n_heads;
  };
  void make_tiles(const StepRows& rows, uint32_t group);
  void make_scratch(uint32_t padded_dim);

  const KernelTable* kernels_;
  ThreadPool* pool_;
  std::vector<Tile> tiles_;
  std::unique_ptr<DeviceMemory> scratch_;  // a piece for each thread
  size_t scratch_floats_ = 0;
};

}  // namespace nightsweep::cpu
