#include "engine/ring_loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace nightsweep {

uint64_t ring_bytes_of(const WeightSlice& slice) {
  uint64_t total = 0;
  for (const WeightExtent& extent : slice.extents) {
    total += covering_range(extent.file, extent.offset, extent.size_bytes, nullptr).size_bytes;
  }
  return total;
}

bool RingSpace::find(uint64_t size_bytes, uint64_t& begin) const {
  begin = head_;
  const uint64_t to_end = capacity_ - head_ % capacity_;
  if (size_bytes > to_end) begin += to_end;
  return begin + size_bytes - tail_ <= capacity_;
}

void RingSpace::free_until(uint64_t position) {
  tail_ = position;
  // An empty ring begins anew at its first byte: the largest free piece is the whole.
  if (tail_ == head_) head_ = tail_ = align_up(head_, capacity_);
}

RingLoader::RingLoader(
    FileReader& reader,
    std::span<std::byte> ring,
    const std::vector<WeightSlice>& slices,
    const StreamSchedule& schedule,
    const Options& options)
    : reader_(reader),
      ring_(ring),
      registered_ring_(reader, ring),
      slices_(slices),
      schedule_(schedule),
      bytes_per_s_(options.bytes_per_s),
      kept_(options.kept),
      space_(ring.size()),
      sweep_(options.first_sweep),
      next_{options.first_sweep, 0},
      checked_sweep_(options.first_sweep) {
  elements_.resize(slices.size());
  for (uint32_t index = 0; index < slices.size(); ++index) {
    Element& element = elements_[index];
    element.ring_bytes = ring_bytes_of(slices[index]);
    element.is_kept = kept_ != nullptr && kept_->keeps(index);
    element.extents.resize(slices[index].extents.size());
    if (2 * element.ring_bytes > ring.size()) {
      fail(
          ErrorKind::internal, "ring of {} bytes is smaller than twice a slice of {} bytes",
          ring.size(), element.ring_bytes);
    }
  }
  poison(ring_);
  reader_.files().check_unchanged();
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

RingLoader::~RingLoader() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  space_is_free_.notify_all();
  thread_.join();
}

void RingLoader::run() {
  ReadQueue queue(reader_, bytes_per_s_);
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    while (queue.wants_more() && place_next(queue))
      continue;
    if (queue.is_idle()) {
      space_is_free_.wait(lock, [this] { return is_stopping_ || can_place_next(); });
      continue;
    }
    lock.unlock();
    const std::vector<uint64_t>& complete = queue.advance();
    lock.lock();
    stats_.read_busy_s = queue.busy_s();
    for (uint64_t index : complete)
      finish_read(static_cast<uint32_t>(index));
  }
}

// REQUIRES: mutex_ is held.
void RingLoader::finish_read(uint32_t index) {
  Element& element = elements_[index];
  if (--element.n_reads_left > 0) return;
  element.state = State::filled;
  const bool comes_again = !element.is_kept && schedule_.passes(index, element.sweep + 1);
  (comes_again ? stats_.read_bytes : stats_.filled_bytes) += slices_[index].size_bytes;
  element_is_filled_.notify_all();
}

// Moves next_ on to a slice that must be read; false: there is none until the operators come to
// another sweep. REQUIRES: mutex_ is held.
bool RingLoader::find_next() {
  for (;; ++next_.slice) {
    next_ = schedule_.next(next_, sweep_ + 1);
    if (next_.sweep > sweep_ + 1) return false;
    const Element& element = elements_[next_.slice];
    if (!element.is_kept || element.state == State::absent) return true;
  }
}

// Where the next slice would go; false: nowhere now. REQUIRES: mutex_ is held.
bool RingLoader::find_room(std::byte*& into) {
  Element& next = elements_[next_.slice];
  if (next.is_kept) {
    switch (kept_->find(next_.slice, into)) {
      case KeptMemory::State::pending:
        return false;
      case KeptMemory::State::ready:
        return true;
      case KeptMemory::State::refused:
        next.is_kept = false;
    }
  }
  if (!space_.find(next.ring_bytes, next.begin)) return false;
  into = ring_.data() + space_.offset_of(next.begin);
  return true;
}

// REQUIRES: mutex_ is held.
bool RingLoader::can_place_next() {
  std::byte* into = nullptr;
  // In a ring that holds more than a whole sweep the next element may still be there from the last.
  return find_next() && elements_[next_.slice].state == State::absent && find_room(into);
}

// REQUIRES: mutex_ is held.
bool RingLoader::place_next(ReadQueue& queue) {
  std::byte* into = nullptr;
  if (!find_next() || elements_[next_.slice].state != State::absent || !find_room(into)) {
    return false;
  }
  if (next_.sweep != checked_sweep_) reader_.files().check_unchanged();
  checked_sweep_ = next_.sweep;

  const uint32_t index = next_.slice++;
  Element& element = elements_[index];
  if (!element.is_kept) {
    space_.take(element.begin, element.ring_bytes);
    in_ring_.push_back(index);
  }
  element.state = State::reading;
  element.sweep = next_.sweep;
  element.n_reads_left = static_cast<uint32_t>(element.extents.size());

  for (size_t i = 0; i < element.extents.size(); ++i) {
    const WeightExtent& extent = slices_[index].extents[i];
    ReadRange range = covering_range(extent.file, extent.offset, extent.size_bytes, into);
    range.tag = index;
    queue.push(range);
    element.extents[i] = into + (extent.offset - range.offset);
    into += range.size_bytes;
  }
  return true;
}

// The element is not placed, and only leases of the thread that asks for it stand in its way.
// REQUIRES: mutex_ is held.
bool RingLoader::can_never_come(const Element& element) {
  return element.state == State::absent && !element.is_kept && !can_place_next() &&
         std::none_of(in_ring_.begin(), in_ring_.end(), [this](uint32_t index) {
           const State state = elements_[index].state;
           return state == State::reading || state == State::filled;
         });
}

void RingLoader::begin_sweep(uint64_t sweep) {
  {
    const std::lock_guard lock(mutex_);
    sweep_ = sweep;
  }
  space_is_free_.notify_one();
}

void RingLoader::look_again() {
  // Whoever is about to wait has looked under the mutex: it must not miss this.
  { const std::lock_guard lock(mutex_); }
  space_is_free_.notify_one();
}

const std::vector<std::byte*>& RingLoader::acquire(uint32_t index) {
  std::unique_lock lock(mutex_);
  Element& element = elements_[index];
  if (element.state != State::filled) {
    const auto begin = std::chrono::steady_clock::now();
    element_is_filled_.wait(lock, [&] {
      return element.state == State::filled || error_ != nullptr || can_never_come(element);
    });
    stats_.wait_s += seconds_since(begin);
    if (element.state != State::filled) {
      if (error_ != nullptr) std::rethrow_exception(error_);
      fail(
          ErrorKind::internal, "slice {} cannot be read: all of the ring ({} bytes) is leased",
          index, ring_.size());
    }
  }
  if (!element.is_kept) element.state = State::leased;
  return element.extents;
}

void RingLoader::release(uint32_t index) {
  const std::lock_guard lock(mutex_);
  Element& element = elements_[index];
  if (element.is_kept) return;
  element.state = State::released;
  poison(ring_.subspan(space_.offset_of(element.begin), element.ring_bytes));
  while (!in_ring_.empty() && elements_[in_ring_.front()].state == State::released) {
    Element& oldest = elements_[in_ring_.front()];
    oldest.state = State::absent;
    in_ring_.pop_front();
    space_.free_until(
        in_ring_.empty() ? oldest.begin + oldest.ring_bytes : elements_[in_ring_.front()].begin);
  }
  space_is_free_.notify_one();
}

RingLoader::Stats RingLoader::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

double measure_disk_rate(
    FileReader& reader,
    std::span<std::byte> ring,
    const std::vector<WeightSlice>& slices,
    const StreamSchedule& schedule,
    uint64_t sweep,
    double bytes_per_s) {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kProbeBytes = 128 << 20;
  constexpr auto kProbeTime = std::chrono::milliseconds(300);
  const Clock::time_point begin = Clock::now();
  RingLoader loader(
      reader, ring, slices, schedule, {.first_sweep = sweep, .bytes_per_s = bytes_per_s});
  uint64_t n_bytes = 0;
  Clock::duration time{};
  SweepPosition at = schedule.next({sweep, 0}, sweep);
  while (at.sweep == sweep && n_bytes < kProbeBytes && time < kProbeTime) {
    loader.acquire(at.slice);
    loader.release(at.slice);
    n_bytes += slices[at.slice].size_bytes;
    time = Clock::now() - begin;
    ++at.slice;
    at = schedule.next(at, sweep);
  }
  return static_cast<double>(n_bytes) / std::chrono::duration<double>(time).count();
}

}  // namespace nightsweep
