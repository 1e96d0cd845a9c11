#include "kernels/cuda/staging.h"

#include <cstring>

#include "base/error.h"
#include "kernels/cuda/host_copy.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/status.h"

namespace nightsweep::cuda {

namespace {

constexpr size_t kSlotAlignment = 256;

}  // namespace

Staging::Staging(cudaStream_t stream)
    : stream_(stream),
      host_(allocate_page_locked(kSlots * kSlotBytes)),
      gpu_(allocate_on_gpu(kSlots * kSlotBytes)) {
  for (cudaEvent_t& event : left_) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  }
}

Staging::~Staging() {
  for (cudaEvent_t event : left_)
    (void)cudaEventDestroy(event);
}

size_t Staging::put(const void* from, size_t size_bytes) {
  if (size_bytes > kSlotBytes) {
    fail(ErrorKind::internal, "a table of {} bytes, at most {} fit", size_bytes, kSlotBytes);
  }
  if (used_bytes_ + size_bytes > kSlotBytes) next_slot();
  const size_t offset = slot_ * kSlotBytes + used_bytes_;
  if (size_bytes > 0) std::memcpy(host_->data() + offset, from, size_bytes);
  used_bytes_ += (size_bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  return offset;
}

const void* Staging::send_bytes(const void* from, size_t size_bytes) {
  const size_t offset = put(from, size_bytes);
  if (size_bytes > 0) {
    if (collected_end_ == collected_begin_) collected_begin_ = offset;
    collected_end_ = offset + size_bytes;
  }
  if (n_collecting_ == 0) copy_collected();
  return gpu_->data() + offset;
}

// What leave() or send_to() has put between is copied along.
void Staging::copy_collected() {
  copy_from_host(
      host_->data() + collected_begin_, collected_end_ - collected_begin_,
      gpu_->data() + collected_begin_, stream_);
  collected_begin_ = collected_end_ = 0;
}

void Staging::send_to(const void* from, size_t size_bytes, std::byte* to) {
  copy_from_host(host_->data() + put(from, size_bytes), size_bytes, to, stream_);
}

const void* Staging::leave_bytes(const void* from, size_t size_bytes) {
  if (size_bytes > kMostLeftBytes) return send_bytes(from, size_bytes);
  return host_->data() + put(from, size_bytes);
}

// A slot is filled again once all that was queued when it was left is over: its copies, and the
// kernels that read it in place.
void Staging::next_slot() {
  copy_collected();
  check(cudaEventRecord(left_[slot_], stream_), "cudaEventRecord");
  slot_ = (slot_ + 1) % kSlots;
  used_bytes_ = 0;
  // An event that was never recorded is over.
  check(cudaEventSynchronize(left_[slot_]), "waiting for a slot of tables");
}

}  // namespace nightsweep::cuda
