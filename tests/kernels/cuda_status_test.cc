// What a user reads for each way in which a GPU refuses, from status codes: no GPU is needed.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cuda/memory.h"
#include "kernels/cuda/refusal.h"
#include "kernels/cuda/status.h"
#include "support/expect_error.h"

namespace nightsweep::cuda {
namespace {

std::string text_of(cudaError_t status, ErrorKind kind = ErrorKind::device) {
  return text_of_error(kind, [&] { fail_status(status, "kernel rope of 3 x 1 x 1 blocks"); });
}

TEST(CudaStatus, what_the_machine_does_is_an_error_of_the_device_that_says_what_to_do) {
  const std::pair<cudaError_t, const char*> cases[] = {
      {cudaErrorInsufficientDriver, "update the NVIDIA driver"},
      {cudaErrorNoDevice, "CUDA_VISIBLE_DEVICES"},
      {cudaErrorInvalidDevice, "no GPU of that number"},
      {cudaErrorDevicesUnavailable, "exclusive mode: end the other program"},
      {cudaErrorMemoryAllocation, "lower --vram, --batch or --context"},
      {cudaErrorECCUncorrectable, "uncorrectable ECC error: restart the machine"},
      {cudaErrorNoKernelImageForDevice, "NIGHTSWEEP_CUDA_ARCHITECTURES"},
      {cudaErrorUnsupportedPtxVersion, "NIGHTSWEEP_CUDA_ARCHITECTURES"},
      {cudaErrorSystemNotReady, "restart it"},
      {cudaErrorSystemDriverMismatch, "reinstall the driver"},
      // Lost: a fault of a kernel, an Xid, a card that was unplugged or reset.
      {cudaErrorLaunchFailure, "Xid line): finished answers are kept, start again"},
      {cudaErrorIllegalAddress, "Xid line): finished answers are kept, start again"},
      {cudaErrorHardwareStackError, "Xid line): finished answers are kept, start again"},
      {cudaErrorLaunchTimeout, "Xid line): finished answers are kept, start again"},
      {cudaErrorNvlinkUncorrectable, "Xid line): finished answers are kept, start again"},
      {cudaErrorUnknown, "Xid line): finished answers are kept, start again"}};
  for (const auto& [status, remedy] : cases) {
    const std::string text = text_of(status);
    EXPECT_TRUE(text.starts_with("CUDA: kernel rope of 3 x 1 x 1 blocks: ")) << text;
    EXPECT_NE(text.find(cudaGetErrorName(status)), std::string::npos) << text;
    EXPECT_NE(text.find(remedy), std::string::npos) << text;
  }
}

TEST(CudaStatus, a_call_that_could_never_work_is_a_fault_of_ours) {
  for (const cudaError_t status :
       {cudaErrorInvalidValue, cudaErrorInvalidConfiguration, cudaErrorInvalidDevicePointer,
        cudaErrorLaunchOutOfResources}) {
    EXPECT_NE(text_of(status, ErrorKind::internal), "") << cudaGetErrorName(status);
  }
  EXPECT_NO_THROW(check(cudaSuccess, "nothing"));
}

TEST(CudaProbe, says_why_there_is_no_gpu) {
  constexpr Probe kSound{
      .driver_version = 13010, .runtime_version = 13000, .status = cudaSuccess, .n_gpus = 2};
  EXPECT_EQ(why_no_gpu(kSound), "");
  Probe probe = kSound;
  probe.driver_version = 0;
  probe.status = cudaErrorInsufficientDriver;  // what the runtime says without a driver
  EXPECT_NE(why_no_gpu(probe).find("no NVIDIA driver is installed"), std::string::npos);
  probe.driver_version = 12020;
  EXPECT_EQ(
      why_no_gpu(probe),
      "the driver is for CUDA 12.2, this program was built with 13.0: update the driver");
  for (const cudaError_t status : {cudaSuccess, cudaErrorNoDevice}) {
    probe = kSound;
    probe.status = status;
    probe.n_gpus = 0;
    EXPECT_NE(why_no_gpu(probe).find("finds no NVIDIA GPU"), std::string::npos);
  }
  for (const auto& [status, part] :
       {std::pair{cudaErrorECCUncorrectable, "ECC error: restart the machine"},
        std::pair{cudaErrorSystemNotReady, "reinstall the driver"},
        std::pair{cudaErrorUnknown, "start again"}}) {
    probe = kSound;
    probe.status = status;
    EXPECT_NE(why_no_gpu(probe).find(part), std::string::npos) << why_no_gpu(probe);
  }
}

TEST(CudaProbe, says_why_a_gpu_cannot_be_used) {
  cudaDeviceProp properties{};
  std::strcpy(properties.name, "GeForce GTX 1080");
  properties.major = 6;
  properties.minor = 1;
  EXPECT_NE(
      why_unusable(properties, cudaComputeModeDefault)
          .find("GeForce GTX 1080 has compute capability 6.1, at least 8.0"),
      std::string::npos);
  properties.major = 8;
  EXPECT_EQ(why_unusable(properties, cudaComputeModeDefault), "");
  EXPECT_EQ(why_unusable(properties, cudaComputeModeExclusiveProcess), "") << "we may be the one";
  EXPECT_NE(
      why_unusable(properties, cudaComputeModeProhibited).find("nvidia-smi -c DEFAULT"),
      std::string::npos);
}

TEST(CudaMemory, too_little_says_what_was_asked_what_is_free_and_which_option_helps) {
  const std::string text = too_little_memory_text(40ULL << 30, 3ULL << 30, 24ULL << 30);
  for (const char* part :
       {"40.0 GiB were asked for", "3.00 GiB of 24.0 GiB are free", "--vram", "--batch",
        "--context", "--kv q8_0"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

}  // namespace
}  // namespace nightsweep::cuda
