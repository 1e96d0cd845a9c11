#include "kernels/cuda/status.h"
#include "kernels/cuda/trap.h"

namespace nightsweep::cuda {
namespace {

__global__ void trap_kernel() {
  asm volatile("trap;");
}

}  // namespace

void launch_trap() {
  trap_kernel<<<1, 1>>>();
  check(cudaGetLastError(), "kernel trap");
}

}  // namespace nightsweep::cuda
