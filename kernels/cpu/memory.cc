#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace nightsweep::cpu {
namespace {

constexpr size_t kPageBytes = 4096;

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

class MappedMemory : public DeviceMemory {
 public:
  explicit MappedMemory(size_t size_bytes) : size_bytes_(size_bytes) {
    const bool is_large = size_bytes >= kLeastInHugePages;
    const size_t alignment = is_large ? kHugePageBytes : kPageBytes;
    if (size_bytes > SIZE_MAX / 2) refuse(size_bytes, ENOMEM);
    mapped_bytes_ = round_up(size_bytes == 0 ? 1 : size_bytes, kPageBytes) + alignment - kPageBytes;
    mapping_ =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) refuse(size_bytes, errno);
    const size_t misaligned = reinterpret_cast<uintptr_t>(mapping_) % alignment;
    const size_t skipped = misaligned == 0 ? 0 : alignment - misaligned;
    data_ = static_cast<std::byte*>(mapping_) + skipped;
    // Advice only; without huge pages everything works, slower.
    if (is_large) madvise(data_, size_bytes, MADV_HUGEPAGE);
  }
  ~MappedMemory() override { munmap(mapping_, mapped_bytes_); }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* data() override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  [[noreturn]] static void refuse(size_t size_bytes, int error_number) {
    fail(
        ErrorKind::device,
        "cannot allocate {} MiB of memory: {} (lower --ram, --batch or --context)",
        (size_bytes >> 20) + 1, errno_text(error_number));
  }

  size_t size_bytes_;
  size_t mapped_bytes_ = 0;
  void* mapping_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceMemory> allocate_memory(size_t size_bytes) {
  return std::make_unique<MappedMemory>(size_bytes);
}

}  // namespace nightsweep::cpu
