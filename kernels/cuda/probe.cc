#include "kernels/cuda/probe.h"

#include "base/error.h"
#include "kernels/cuda/refusal.h"
#include "kernels/cuda/status.h"

namespace nightsweep {

namespace {

// Dense products of half with sums in float32, operations a clock and multiprocessor: NVIDIA's
// architecture white papers; 0 where none says.
uint32_t f16_operations(uint32_t capability) {
  switch (capability) {
    case 80:
      return 2048;
    case 86:
    case 89:
    case 120:
      return 512;
    case 90:
      return 4096;
    case 100:
      return 8192;
    default:
      return 0;
  }
}

DeviceLimits limits_of(int device, uint32_t capability, uint32_t n_processors) {
  int memory_khz = 0;
  int bus_bits = 0;
  int clock_khz = 0;
  const auto get = [&](int& to, cudaDeviceAttr attribute, const char* name) {
    cuda::check(cudaDeviceGetAttribute(&to, attribute, device), name);
  };
  get(memory_khz, cudaDevAttrMemoryClockRate, "cudaDevAttrMemoryClockRate");
  get(bus_bits, cudaDevAttrGlobalMemoryBusWidth, "cudaDevAttrGlobalMemoryBusWidth");
  get(clock_khz, cudaDevAttrClockRate, "cudaDevAttrClockRate");
  // Two transfers a clock.
  return {
      .bytes_per_s = 2e3 * memory_khz * (bus_bits / 8.0),
      .f16_flops = 1e3 * clock_khz * n_processors * f16_operations(capability)};
}

cuda::Probe ask() {
  cuda::Probe probe;
  cuda::check(cudaRuntimeGetVersion(&probe.runtime_version), "cudaRuntimeGetVersion");
  if (cudaDriverGetVersion(&probe.driver_version) != cudaSuccess) probe.driver_version = 0;
  probe.status = cudaGetDeviceCount(&probe.n_gpus);
  (void)cudaGetLastError();
  return probe;
}

}  // namespace

CudaSupport cuda_support() {
  const cuda::Probe probe = ask();
  std::string why_not = cuda::why_no_gpu(probe);
  return {
      .is_built = true,
      .n_gpus = why_not.empty() ? static_cast<uint32_t>(probe.n_gpus) : 0,
      .why_not = std::move(why_not)};
}

namespace cuda {

GpuInfo open_gpu(uint32_t index) {
  const CudaSupport support = cuda_support();
  if (support.n_gpus == 0) fail(ErrorKind::device, "--device cuda: {}", support.why_not);
  if (index >= support.n_gpus) {
    fail(
        ErrorKind::device, "--device cuda:{}: there {} cuda:0{}", index,
        support.n_gpus == 1 ? "is only" : "are",
        support.n_gpus == 1 ? "" : format(" to cuda:{}", support.n_gpus - 1));
  }
  const int number = static_cast<int>(index);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, number), format("cudaGetDeviceProperties({})", index));
  int mode = 0;
  check(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, number), "cudaDevAttrComputeMode");
  if (const std::string why_not = why_unusable(properties, mode); !why_not.empty()) {
    fail(ErrorKind::device, "--device cuda:{}: {}", index, why_not);
  }
  check(cudaSetDevice(number), format("cudaSetDevice({})", index));
  check(cudaFree(nullptr), format("opening {}", properties.name));
  const auto capability = static_cast<uint32_t>(properties.major * 10 + properties.minor);
  const auto n_processors = static_cast<uint32_t>(properties.multiProcessorCount);
  return {
      .index = number,
      .name = properties.name,
      .pci_address = format(
          "{:08x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
          properties.pciDeviceID),
      .capability = capability,
      .n_processors = n_processors,
      .shared_bytes = properties.sharedMemPerBlockOptin,
      .memory_bytes = properties.totalGlobalMem,
      .limits = limits_of(number, capability, n_processors)};
}

}  // namespace cuda
}  // namespace nightsweep
