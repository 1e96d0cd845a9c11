#include "kernels/cuda/memory.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "kernels/cuda/status.h"

namespace nightsweep::cuda {

namespace {

constexpr size_t kDirectReadAlignment = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

std::byte* aligned_for_reads(void* address) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  return static_cast<std::byte*>(address) +
         (kDirectReadAlignment - number % kDirectReadAlignment) % kDirectReadAlignment;
}

class GpuMemory final : public DeviceMemory {
 public:
  explicit GpuMemory(size_t size_bytes) : size_bytes_(size_bytes) {
    // An empty piece has an address too, and cudaMalloc aligns to less than we promise.
    if (size_bytes > SIZE_MAX - 2 * kDirectReadAlignment) refuse();
    void* address = nullptr;
    const cudaError_t status = cudaMalloc(&address, size_bytes + kDirectReadAlignment);
    if (status == cudaErrorMemoryAllocation || status == cudaErrorInvalidValue) refuse();
    check(status, format("cudaMalloc({})", size_bytes));
    base_ = address;
    data_ = aligned_for_reads(address);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  // The driver has freed everything of a device that was lost: its status says nothing new.
  ~GpuMemory() override { (void)cudaFree(base_); }

  std::byte* data() override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  [[noreturn]] void refuse() const {
    (void)cudaGetLastError();
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    fail(ErrorKind::device, "{}", too_little_memory_text(size_bytes_, free_bytes, total_bytes));
  }

  size_t size_bytes_;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
};

class PageLockedMemory final : public DeviceMemory {
 public:
  explicit PageLockedMemory(size_t size_bytes) : size_bytes_(size_bytes) {
    // What is small begins anywhere.
    void* address = nullptr;
    const cudaError_t status =
        cudaHostAlloc(&address, size_bytes + kDirectReadAlignment, cudaHostAllocDefault);
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      fail(
          ErrorKind::device,
          "page-locked memory: {} of the host's memory could not be had ({}); lower --ram, or "
          "raise the limit with ulimit -l",
          size_text(size_bytes), status_text(status));
    }
    base_ = address;
    data_ = aligned_for_reads(address);
  }
  PageLockedMemory(const PageLockedMemory&) = delete;
  PageLockedMemory& operator=(const PageLockedMemory&) = delete;
  ~PageLockedMemory() override { (void)cudaFreeHost(base_); }

  std::byte* data() override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  size_t size_bytes_;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
};

// Huge pages of the system's, locked where they are. The driver's own are small ones: on an H200
// machine it takes 0.37 to 0.55 s to lock a GiB of those and 0.18 s to give it back, and 0.17 to
// 0.22 s and 0.02 s for these.
class LockedHugePages final : public DeviceMemory {
 public:
  explicit LockedHugePages(size_t size_bytes) : size_bytes_(size_bytes) {
    mapped_bytes_ = size_bytes + kHugePageBytes;
    void* const mapping =
        ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
      fail(
          ErrorKind::device, "mapping {} of the host's memory: {}", size_text(size_bytes),
          errno_text(errno));
    }
    mapping_ = mapping;
    const size_t misaligned = reinterpret_cast<uintptr_t>(mapping_) % kHugePageBytes;
    data_ = static_cast<std::byte*>(mapping_) + (kHugePageBytes - misaligned);
    // Advice only: a system without them gives small ones.
    (void)::madvise(data_, size_bytes, MADV_HUGEPAGE);
    const cudaError_t status = cudaHostRegister(data_, size_bytes, cudaHostRegisterDefault);
    if (status == cudaSuccess) return;
    (void)cudaGetLastError();
    ::munmap(mapping_, mapped_bytes_);
    fail(
        ErrorKind::device, "cudaHostRegister: {} of the host's memory could not be locked ({})",
        size_text(size_bytes), status_text(status));
  }
  LockedHugePages(const LockedHugePages&) = delete;
  LockedHugePages& operator=(const LockedHugePages&) = delete;
  ~LockedHugePages() override {
    (void)cudaHostUnregister(data_);
    ::munmap(mapping_, mapped_bytes_);
  }

  std::byte* data() override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  size_t size_bytes_;
  size_t mapped_bytes_ = 0;
  void* mapping_ = nullptr;
  std::byte* data_ = nullptr;
};

class Registration final : public HostRegistration {
 public:
  Registration(const std::byte* from, size_t size_bytes)
      : from_(const_cast<std::byte*>(from)) {  // the API's type; the flag says that it is read
    const cudaError_t status = cudaHostRegister(from_, size_bytes, cudaHostRegisterReadOnly);
    if (status == cudaSuccess) return;
    (void)cudaGetLastError();
    fail(
        ErrorKind::device, "cudaHostRegister: {} of the host's memory could not be locked ({})",
        size_text(size_bytes), status_text(status));
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() override { (void)cudaHostUnregister(from_); }

 private:
  std::byte* from_;
};

}  // namespace

std::string too_little_memory_text(uint64_t asked, uint64_t free, uint64_t total) {
  return format(
      "GPU memory: {} were asked for and {} of {} are free; lower --vram, --batch or --context, or "
      "choose --kv q8_0, or end other programs on this GPU",
      size_text(asked), size_text(free), size_text(total));
}

std::unique_ptr<HostRegistration> register_read_only(const std::byte* from, size_t size_bytes) {
  return std::make_unique<Registration>(from, size_bytes);
}

std::unique_ptr<DeviceMemory> allocate_on_gpu(size_t size_bytes) {
  return std::make_unique<GpuMemory>(size_bytes);
}

std::unique_ptr<DeviceMemory> allocate_page_locked(size_t size_bytes) {
  return std::make_unique<PageLockedMemory>(size_bytes);
}

std::unique_ptr<DeviceMemory> allocate_for_copies(size_t size_bytes) {
  if (size_bytes < 4 * kHugePageBytes) return allocate_page_locked(size_bytes);
  try {
    return std::make_unique<LockedHugePages>(size_bytes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    log_info(
        "page-locked memory: {}; the driver's own is asked for, which takes longer", error.what());
  }
  return allocate_page_locked(size_bytes);
}

}  // namespace nightsweep::cuda
