// A device that has memory and packs, and computes nothing: for what only moves weights.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/error.h"
#include "kernels/device.h"

namespace nightsweep {

// pack() writes every byte xor kPackMark and a few bytes of padding behind each matrix, so packed
// weights cannot be taken for the file's, nor the file's for packed ones.
class FakeDevice : public Device {
 public:
  static constexpr std::byte kPackMark{0x5A};
  static constexpr size_t kPadding = 24;

  uint64_t allocated_bytes() const { return allocated_bytes_; }
  uint64_t peak_bytes() const { return peak_bytes_; }

  std::string description() const override { return "fake"; }
  std::string kernel_version() const override { return "fake"; }

  std::unique_ptr<DeviceMemory> allocate(size_t size_bytes) override {
    return std::make_unique<Memory>(*this, size_bytes);
  }

  bool shares_host_memory() const override { return true; }
  void upload(const void* from, size_t size_bytes, std::byte* to) override {
    std::memcpy(to, from, size_bytes);
  }
  const float* read_back(const float* from, size_t /*count*/) override { return from; }

  size_t packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) const override {
    return quant_bytes(type, n_cols) * n_rows + kPadding;
  }
  void pack(const MatrixView& file, std::byte* packed) override {
    const size_t size_bytes = quant_bytes(file.type, file.n_cols) * file.n_rows;
    for (size_t i = 0; i < size_bytes; ++i)
      packed[i] = file.data[i] ^ kPackMark;
    std::memset(packed + size_bytes, 0x11, kPadding);
  }
  void synchronize() override {}

  size_t kv_page_bytes(const KvShape& /*shape*/) const override { refuse(); }
  void reserve(uint32_t /*max_rows*/, uint32_t /*max_cols*/) override { refuse(); }
  void embed(const MatrixView&, std::span<const uint32_t>, float*) override { refuse(); }
  void rms_norm(const float*, const float*, float, uint32_t, uint32_t, float*) override {
    refuse();
  }
  void set_input(const float*, uint32_t, uint32_t) override { refuse(); }
  void linear(std::span<const LinearPart>) override { refuse(); }
  void begin_step(const StepRows&) override { refuse(); }
  void rope(const RopeShape&, float*) override { refuse(); }
  void store_kv(const KvLayer&, const float*, const float*) override { refuse(); }
  void copy_kv_pages(const KvLayer&, uint32_t, size_t, std::span<const KvPageCopy>) override {
    refuse();
  }
  void attention(const KvLayer&, const float*, uint32_t, float, float*) override { refuse(); }
  void swiglu(const float*, const float*, size_t, float*) override { refuse(); }
  void gather_rows(const float*, std::span<const uint32_t>, uint32_t, float*) override { refuse(); }

 private:
  class Memory final : public DeviceMemory {
   public:
    Memory(FakeDevice& device, size_t size_bytes) : device_(device), size_bytes_(size_bytes) {
      data_ = static_cast<std::byte*>(std::aligned_alloc(4096, (size_bytes + 4095) / 4096 * 4096));
      const uint64_t now = device_.allocated_bytes_ += size_bytes;
      uint64_t peak = device_.peak_bytes_;
      while (peak < now && !device_.peak_bytes_.compare_exchange_weak(peak, now))
        continue;
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() override {
      std::free(data_);
      device_.allocated_bytes_ -= size_bytes_;
    }
    std::byte* data() override { return data_; }
    size_t size_bytes() const override { return size_bytes_; }

   private:
    FakeDevice& device_;
    size_t size_bytes_;
    std::byte* data_ = nullptr;
  };

  [[noreturn]] static void refuse() {
    fail(ErrorKind::internal, "the fake device does not compute");
  }

  // The host's memory may be asked for by another thread.
  std::atomic<uint64_t> allocated_bytes_ = 0;
  std::atomic<uint64_t> peak_bytes_ = 0;
};

}  // namespace nightsweep
