// Rotary positions and the store of keys and values.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "kernels/device.h"

namespace nightsweep::cuda {

// The rows of a step as the kernels see them, in memory of the GPU.
struct GpuRows {
  uint32_t n_rows = 0;
  const uint32_t* positions = nullptr;  // (rows)
  const uint32_t* pages = nullptr;      // (rows) the page that holds the row's own position
};

// Cosines and sines of a step's positions, made once a step and shape.
class Rope {
 public:
  explicit Rope(cudaStream_t stream) : stream_(stream) {}

  static size_t table_bytes(uint32_t max_rows);
  void reserve(uint32_t max_rows);
  void begin_step(const GpuRows& rows);
  // Both: see kernels/device.h.
  void apply(const RopeShape& shape, float* x);
  void apply_and_store(
      const RopeShape& q_shape,
      const RopeShape& k_shape,
      const KvLayer& layer,
      float* q,
      const float* k,
      const float* v);
  void store(const KvLayer& layer, const float* k, const float* v);

 private:
  // Made here, or, `is_settled`, by a kernel before the last one.
  struct Table {
    const float2* at;
    bool is_settled;
  };
  Table table_for(const RopeShape& shape);

  cudaStream_t stream_;
  GpuRows rows_;
  uint32_t max_rows_ = 0;
  std::unique_ptr<DeviceMemory> table_;  // (max_rows, n_rot / 2) cosine and sine
  // Of which shape the table is; no frequencies: of none.
  std::vector<double> frequencies_;
  float magnitude_ = 0;
};

}  // namespace nightsweep::cuda
