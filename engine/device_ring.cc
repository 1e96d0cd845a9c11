#include "engine/device_ring.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace nightsweep {

namespace {

// Extents begin where the widest loads of a GPU may.
constexpr uint64_t kExtentAlignment = 256;
// Small enough that a throttled copy comes in an even flow, large enough for the link's full rate.
constexpr uint64_t kCopyBytes = 8 << 20;

}  // namespace

uint64_t DeviceRing::bytes_of(const WeightSlice& slice) {
  uint64_t total = 0;
  for (const WeightExtent& extent : slice.extents)
    total += align_up(extent.size_bytes, kExtentAlignment);
  return total;
}

DeviceRing::DeviceRing(
    Device& device,
    HostTiers& host,
    const std::vector<WeightSlice>& slices,
    const StreamSchedule& schedule,
    std::span<std::byte> ring,
    const Options& options)
    : device_(device),
      host_(host),
      slices_(slices),
      schedule_(schedule),
      ring_(ring),
      rate_(options.bytes_per_s),
      space_(ring.size()),
      sweep_(options.first_sweep),
      next_{options.first_sweep, 0} {
  for (const WeightSlice& slice : slices) {
    Element element;
    element.ring_bytes = bytes_of(slice);
    element.extents.resize(slice.extents.size());
    element.filled = device.make_event();
    element.used = device.make_event();
    if (2 * element.ring_bytes > ring.size()) {
      fail(
          ErrorKind::internal, "device ring of {} bytes is smaller than twice a slice of {} bytes",
          ring.size(), element.ring_bytes);
    }
    elements_.push_back(std::move(element));
  }
  thread_ = std::thread([this] {
    try {
      run();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      element_is_filled_.notify_all();
    }
  });
}

DeviceRing::~DeviceRing() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  space_is_free_.notify_all();
  thread_.join();
  // What is still being copied must not lose the memory at either end. A device that was lost
  // copies nothing any more.
  try {
    for (uint32_t index : host_leases_)
      device_.wait(*elements_[index].filled);
  } catch (const Error& error) {
    log_debug("the end of a device's ring: {}", error.what());
  }
}

void DeviceRing::run() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (!can_place_next()) {
      // Nothing else to do: the disk gets its memory back.
      lock.unlock();
      end_host_leases(0);
      lock.lock();
      const auto begin = std::chrono::steady_clock::now();
      space_is_free_.wait(lock, [this] { return is_stopping_ || can_place_next(); });
      stats_.room_wait_s += seconds_since(begin);
      continue;
    }
    const uint32_t index = next_.slice;
    const DeviceEvent* const used = place_next();
    lock.unlock();
    if (used != nullptr) device_.hold_back(WorkQueue::copies, *used);
    end_host_leases(HostTiers::kMaxLeases - 1);
    copy(index);
    lock.lock();
    elements_[index].state = State::filled;
    stats_.copied_bytes += slices_[index].size_bytes;
    element_is_filled_.notify_all();
  }
}

// REQUIRES: mutex_ is held.
bool DeviceRing::can_place_next() {
  next_ = schedule_.next(next_, sweep_ + 1);
  if (next_.sweep > sweep_ + 1) return false;
  const Element& next = elements_[next_.slice];
  uint64_t begin = 0;
  return next.state == State::absent && space_.find(next.ring_bytes, begin);
}

// Takes the space; null, or what must have passed before it is written. REQUIRES: mutex_ is held.
const DeviceEvent* DeviceRing::place_next() {
  const uint32_t index = next_.slice++;
  Element& element = elements_[index];
  space_.find(element.ring_bytes, element.begin);
  space_.take(element.begin, element.ring_bytes);
  in_ring_.push_back(index);
  element.state = State::copying;

  // Operators run in order: the last one who had any of these bytes stands for all before.
  const DeviceEvent* last = nullptr;
  while (!freed_.empty() &&
         freed_.front().begin + ring_.size() < element.begin + element.ring_bytes) {
    last = elements_[freed_.front().index].used.get();
    freed_.pop_front();
  }
  return last;
}

void DeviceRing::copy(uint32_t index) {
  Element& element = elements_[index];
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::byte*>& from = host_.acquire(index);
  const double waited_s = seconds_since(begin);
  host_leases_.push_back(index);
  std::byte* into = ring_.data() + space_.offset_of(element.begin);
  for (size_t e = 0; e < element.extents.size(); ++e) {
    const uint64_t size_bytes = slices_[index].extents[e].size_bytes;
    element.extents[e] = into;
    for (uint64_t at = 0; at < size_bytes; at += kCopyBytes) {
      const uint64_t piece = std::min(kCopyBytes, size_bytes - at);
      for (;;) {
        const auto delay = rate_.delay(piece, RateLimit::Clock::now());
        if (delay <= RateLimit::Clock::duration::zero()) break;
        std::this_thread::sleep_for(delay);
      }
      rate_.pass();
      device_.queue_copy(from[e] + at, piece, into + at);
    }
    into += align_up(size_bytes, kExtentAlignment);
  }
  device_.record(*element.filled, WorkQueue::copies);
  const std::lock_guard lock(mutex_);
  stats_.host_wait_s += waited_s;
}

// Waits for the oldest copies until at most so many slices of the host are leased.
void DeviceRing::end_host_leases(size_t most) {
  while (host_leases_.size() > most) {
    device_.wait(*elements_[host_leases_.front()].filled);
    host_.release(host_leases_.front());
    host_leases_.pop_front();
  }
}

void DeviceRing::begin_sweep(uint64_t sweep) {
  host_.begin_sweep(sweep);
  {
    const std::lock_guard lock(mutex_);
    sweep_ = sweep;
  }
  space_is_free_.notify_one();
}

const std::vector<std::byte*>& DeviceRing::acquire(uint32_t index) {
  std::unique_lock lock(mutex_);
  Element& element = elements_[index];
  if (element.state != State::filled) {
    const auto begin = std::chrono::steady_clock::now();
    element_is_filled_.wait(
        lock, [&] { return element.state == State::filled || error_ != nullptr; });
    stats_.wait_s += seconds_since(begin);
    if (element.state != State::filled) std::rethrow_exception(error_);
  }
  element.state = State::leased;
  device_.hold_back(WorkQueue::operators, *element.filled);
  return element.extents;
}

void DeviceRing::release(uint32_t index) {
  // A lease ends while an exception passes as well: the error of a lost device is for who acquires
  // next.
  std::exception_ptr lost;
  try {
    device_.record(*elements_[index].used, WorkQueue::operators);
  } catch (const Error&) {
    lost = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (error_ == nullptr) error_ = lost;
  if (in_ring_.empty() || in_ring_.front() != index) {
    fail(ErrorKind::internal, "slice {} released out of order", index);
  }
  Element& element = elements_[index];
  element.state = State::absent;
  in_ring_.pop_front();
  freed_.push_back({element.begin, index});
  space_.free_until(
      in_ring_.empty() ? element.begin + element.ring_bytes : elements_[in_ring_.front()].begin);
  space_is_free_.notify_one();
}

DeviceRing::Stats DeviceRing::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace nightsweep
