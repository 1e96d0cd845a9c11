// The input of the linear() calls, laid out in tiles: rounded to 8 bits, and in float32.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace nightsweep::cpu {

class Input {
 public:
  Input(const KernelTable& kernels, ThreadPool& pool) : kernels_(&kernels), pool_(&pool) {}

  void reserve(uint32_t max_rows, uint32_t max_cols);
  // x: (rows, n_cols); must stay unchanged while this is the input.
  void set(const float* x, uint32_t n_rows, uint32_t n_cols);

  uint32_t n_cols() const { return n_cols_; }
  // Of the rounded form.
  size_t size_bytes() const;
  // Made at the first use after set(). REQUIRES for rounded(): n_cols is a multiple of 32.
  const InputTiles& rounded();
  const InputTiles& in_float();

 private:
  // One of the two forms.
  struct Form {
    std::unique_ptr<DeviceMemory> memory;
    std::vector<InputTile> tiles;
    InputTiles view;
    bool is_made = false;
  };
  void lay_out(Form& form, size_t (*tile_bytes)(uint32_t n_rows, uint32_t n_cols));

  const KernelTable* kernels_;
  ThreadPool* pool_;
  const float* x_ = nullptr;
  uint32_t n_rows_ = 0;
  uint32_t n_cols_ = 0;
  uint32_t max_rows_ = 0;
  uint32_t max_cols_ = 0;
  Form rounded_;
  Form float_;
};

}  // namespace nightsweep::cpu
