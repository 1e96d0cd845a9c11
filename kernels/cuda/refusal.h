// Why a GPU cannot be used, and what to do about it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace nightsweep::cuda {

// What the machine answers to the first questions.
struct Probe {
  int driver_version = 0;  // 12080 for 12.8; 0: there is no driver
  int runtime_version = 0;
  cudaError_t status = cudaSuccess;  // of asking for the number of GPUs
  int n_gpus = 0;
};

// Empty: there is at least one GPU.
std::string why_no_gpu(const Probe& probe);
// Of one GPU that is there; empty: it can be used.
std::string why_unusable(const cudaDeviceProp& properties, int compute_mode);

}  // namespace nightsweep::cuda
