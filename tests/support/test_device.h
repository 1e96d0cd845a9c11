// Which device a test runs on. A test that is made for all of them takes a DeviceSpec, and says
// SKIPPED for a GPU that is not there.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "support/mirrored_device.h"

namespace nightsweep {

struct DeviceSpec {
  CpuOptions cpu;
  bool is_cuda = false;
};

inline DeviceSpec cuda_spec() {
  DeviceSpec spec;
  spec.is_cuda = true;
  return spec;
}

inline std::unique_ptr<Device> make_device(const DeviceSpec& spec) {
  return spec.is_cuda ? make_cuda_device({}) : make_cpu_device(spec.cpu);
}

// For tests whose arrays are the host's.
inline std::unique_ptr<Device> make_host_device(const DeviceSpec& spec) {
  if (!spec.is_cuda) return make_cpu_device(spec.cpu);
  return std::make_unique<MirroredDevice>(make_cuda_device({}));
}

inline std::string missing_gpu() {
  CudaSupport support = cuda_support();
  return support.n_gpus > 0 ? "" : support.why_not;
}

}  // namespace nightsweep

// REQUIRES: first statement of a test, or of SetUp().
#define NEEDS_GPU(is_needed)                                                          \
  if ((is_needed) && !::nightsweep::missing_gpu().empty()) {                          \
    GTEST_SKIP() << "SKIPPED: no GPU for this test: " << ::nightsweep::missing_gpu(); \
  }                                                                                   \
  static_assert(true)
