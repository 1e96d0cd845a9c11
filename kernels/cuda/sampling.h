// The choice of tokens on the GPU: Device::pick().
//
// All sums are of whole numbers: a weight exp((logit - highest) / temperature) counts in steps of
// 2^-40, so that no order of adding changes the choice. The draw goes through the kept tokens from
// the heaviest on where few are kept, else by id; which of the two follows from the row alone.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/staging.h"
#include "kernels/device.h"

namespace nightsweep::cuda {

// A PickRow as the kernel reads it.
struct PickJob {
  uint32_t row;
  float inverse_temperature;
  float min_p;
  uint32_t top_k;
  double top_p;
  double uniform;
  float repetition_penalty;
  uint32_t first_edit;
  uint32_t n_edits;
};

void launch_pick(
    float* logits,
    uint32_t n_vocab,
    const PickJob* jobs,
    uint32_t n_jobs,
    const LogitEdit* edits,
    Pick* picks,
    cudaStream_t stream);

class Picker {
 public:
  Picker(Staging& staging, cudaStream_t stream);

  // See Device::pick().
  void pick(float* logits, uint32_t n_vocab, std::span<const PickRow> rows, std::span<Pick> picks);

 private:
  void
  pick_some(float* logits, uint32_t n_vocab, std::span<const PickRow> rows, std::span<Pick> picks);

  Staging& staging_;
  cudaStream_t stream_;
  std::unique_ptr<DeviceMemory> picks_;  // page-locked: the kernel writes there
  std::vector<PickJob> jobs_;
  std::vector<LogitEdit> edits_;
};

}  // namespace nightsweep::cuda
