// A CPU behind a link: its memory is taken for one of its own, so that weights stream to it as to a
// GPU, and its bits are the CPU's. Copies are held to their contract: from memory of
// allocate_host() or register_host() only, and not across the end of one.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "support/forwarding_device.h"

namespace nightsweep {

// What a test sees of a device, and decides for it; outlives it.
struct LinkState {
  std::atomic<uint64_t> free_bytes = uint64_t{1} << 30;     // as the device says
  std::atomic<uint64_t> host_bytes_left = UINT64_MAX;       // of allocate_host()
  std::atomic<uint64_t> n_bad_copies = 0;                   // from memory that is not known
  std::atomic<uint64_t> registered_bytes = 0;               // now
  std::atomic<uint64_t> n_copies_before_loss = UINT64_MAX;  // then the device is lost
  std::atomic<bool> can_register = true;
  std::atomic<uint64_t> n_repacks = 0;
  std::atomic<uint64_t> n_begun = 0;  // calls of begin_step()

  std::mutex mutex;
  std::map<const std::byte*, size_t> known;  // guarded by mutex
};

class DetachedDevice final : public ForwardingDevice {
 public:
  DetachedDevice(std::unique_ptr<Device> device, std::shared_ptr<LinkState> link)
      : ForwardingDevice(std::move(device)), link_(std::move(link)) {}

  bool shares_host_memory() const override { return false; }
  uint64_t free_bytes() const override { return link_->free_bytes; }

  std::unique_ptr<DeviceMemory> allocate_host(size_t size_bytes) override {
    if (size_bytes > link_->host_bytes_left) {
      fail(ErrorKind::device, "page-locked memory: refused by the test");
    }
    link_->host_bytes_left -= size_bytes;
    return std::make_unique<HostMemory>(allocate(size_bytes), link_);
  }
  std::unique_ptr<HostRegistration> register_host(const std::byte* from, size_t size_bytes)
      override {
    if (!link_->can_register) fail(ErrorKind::device, "registering: refused by the test");
    return std::make_unique<Registration>(from, size_bytes, link_);
  }
  void begin_step(const StepRows& rows) override {
    ++link_->n_begun;
    ForwardingDevice::begin_step(rows);
  }
  void repack(const MatrixView& file, std::byte* packed) override {
    ++link_->n_repacks;
    ForwardingDevice::repack(file, packed);
  }
  void queue_copy(const std::byte* from, size_t size_bytes, std::byte* to) override {
    if (link_->n_copies_before_loss-- == 0) {
      link_->n_copies_before_loss = 0;
      fail(ErrorKind::device, "the device was lost by the test");
    }
    {
      const std::lock_guard lock(link_->mutex);
      auto after = link_->known.upper_bound(from);
      const bool is_known = after != link_->known.begin() &&
                            from + size_bytes <= std::prev(after)->first + std::prev(after)->second;
      if (!is_known) ++link_->n_bad_copies;
    }
    std::memcpy(to, from, size_bytes);
  }

 private:
  // What is known as long as it lives.
  class Known {
   public:
    Known(const std::byte* from, size_t size_bytes, std::shared_ptr<LinkState> link)
        : link_(std::move(link)), from_(from) {
      const std::lock_guard lock(link_->mutex);
      link_->known[from_] = size_bytes;
    }
    ~Known() {
      const std::lock_guard lock(link_->mutex);
      link_->known.erase(from_);
    }
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;

   private:
    std::shared_ptr<LinkState> link_;
    const std::byte* from_;
  };
  class HostMemory final : public DeviceMemory {
   public:
    HostMemory(std::unique_ptr<DeviceMemory> memory, const std::shared_ptr<LinkState>& link)
        : memory_(std::move(memory)), known_(memory_->data(), memory_->size_bytes(), link) {}
    std::byte* data() override { return memory_->data(); }
    size_t size_bytes() const override { return memory_->size_bytes(); }

   private:
    std::unique_ptr<DeviceMemory> memory_;
    Known known_;
  };
  class Registration final : public HostRegistration {
   public:
    Registration(const std::byte* from, size_t size_bytes, const std::shared_ptr<LinkState>& link)
        : link_(link), size_bytes_(size_bytes), known_(from, size_bytes, link) {
      link_->registered_bytes += size_bytes_;
    }
    ~Registration() override { link_->registered_bytes -= size_bytes_; }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    std::shared_ptr<LinkState> link_;
    size_t size_bytes_;
    Known known_;
  };

  std::shared_ptr<LinkState> link_;
};

}  // namespace nightsweep
