#include "engine/ring_loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace nightsweep {

namespace {

void poison(std::span<std::byte> space) {
  if constexpr (kPoisonsReleasedSpace) std::fill(space.begin(), space.end(), kPoison);
}

}  // namespace

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
    const std::vector<const WeightSlice*>& sequence,
    bool is_cyclic,
    double bytes_per_s)
    : reader_(reader),
      ring_(ring),
      is_cyclic_(is_cyclic),
      bytes_per_s_(bytes_per_s),
      space_(ring.size()) {
  elements_.reserve(sequence.size());
  for (const WeightSlice* slice : sequence) {
    Element element;
    element.slice = slice;
    element.ring_bytes = ring_bytes_of(*slice);
    element.extents.resize(slice->extents.size());
    if (2 * element.ring_bytes > ring.size()) {
      fail(
          ErrorKind::internal, "ring of {} bytes is smaller than twice a slice of {} bytes",
          ring.size(), element.ring_bytes);
    }
    elements_.push_back(std::move(element));
  }
  poison(ring_);
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
      if (next_to_place_ == elements_.size()) return;
      space_is_free_.wait(lock, [this] { return is_stopping_ || can_place_next(); });
      continue;
    }
    lock.unlock();
    const std::vector<uint64_t>& complete = queue.advance();
    lock.lock();
    stats_.read_busy_s = queue.busy_s();
    for (uint64_t index : complete) {
      Element& element = elements_[index];
      if (--element.n_reads_left > 0) continue;
      element.state = State::filled;
      stats_.read_bytes += element.slice->size_bytes;
      element_is_filled_.notify_all();
    }
  }
}

bool RingLoader::can_place_next() const {
  if (next_to_place_ == elements_.size()) return false;
  const Element& next = elements_[next_to_place_];
  uint64_t begin = 0;
  // In a ring that holds more than a whole sweep the next element may still be there from the last.
  return next.state == State::absent && space_.find(next.ring_bytes, begin);
}

// REQUIRES: mutex_ is held.
bool RingLoader::place_next(ReadQueue& queue) {
  if (!can_place_next()) return false;
  if (next_to_place_ == 0) reader_.files().check_unchanged();

  const uint32_t index = next_to_place_++;
  if (is_cyclic_ && next_to_place_ == elements_.size()) next_to_place_ = 0;
  Element& element = elements_[index];
  space_.find(element.ring_bytes, element.begin);
  space_.take(element.begin, element.ring_bytes);
  in_ring_.push_back(index);
  element.state = State::reading;
  element.n_reads_left = static_cast<uint32_t>(element.extents.size());

  std::byte* into = ring_.data() + space_.offset_of(element.begin);
  for (size_t i = 0; i < element.extents.size(); ++i) {
    const WeightExtent& extent = element.slice->extents[i];
    ReadRange range = covering_range(extent.file, extent.offset, extent.size_bytes, into);
    range.tag = index;
    queue.push(range);
    element.extents[i] = into + (extent.offset - range.offset);
    into += range.size_bytes;
  }
  return true;
}

// The element is not placed, and only leases of the thread that asks for it stand in its way.
bool RingLoader::can_never_come(const Element& element) const {
  return element.state == State::absent && !can_place_next() &&
         std::none_of(in_ring_.begin(), in_ring_.end(), [this](uint32_t index) {
           const State state = elements_[index].state;
           return state == State::reading || state == State::filled;
         });
}

const std::vector<std::byte*>& RingLoader::acquire(uint32_t index) {
  std::unique_lock lock(mutex_);
  if (index != next_to_acquire_ || index >= elements_.size()) {
    fail(ErrorKind::internal, "slice {} acquired, expected {}", index, next_to_acquire_);
  }
  Element& element = elements_[index];
  if (element.state != State::filled) {
    const auto begin = std::chrono::steady_clock::now();
    element_is_filled_.wait(lock, [&] {
      return element.state == State::filled || error_ != nullptr || can_never_come(element);
    });
    stats_.wait_s +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (element.state != State::filled) {
      if (error_ != nullptr) std::rethrow_exception(error_);
      fail(
          ErrorKind::internal, "slice {} cannot be read: all of the ring ({} bytes) is leased",
          index, ring_.size());
    }
  }
  element.state = State::leased;
  ++next_to_acquire_;
  if (is_cyclic_ && next_to_acquire_ == elements_.size()) next_to_acquire_ = 0;
  return element.extents;
}

void RingLoader::release(uint32_t index) {
  const std::lock_guard lock(mutex_);
  Element& element = elements_[index];
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
    const std::vector<const WeightSlice*>& sequence,
    double bytes_per_s) {
  using Clock = std::chrono::steady_clock;
  constexpr uint64_t kProbeBytes = 128 << 20;
  constexpr auto kProbeTime = std::chrono::milliseconds(300);
  const Clock::time_point begin = Clock::now();
  RingLoader loader(reader, ring, sequence, false, bytes_per_s);
  uint64_t n_bytes = 0;
  Clock::duration time{};
  for (uint32_t i = 0; i < sequence.size() && n_bytes < kProbeBytes && time < kProbeTime; ++i) {
    loader.acquire(i);
    loader.release(i);
    n_bytes += sequence[i]->size_bytes;
    time = Clock::now() - begin;
  }
  return static_cast<double>(n_bytes) / std::chrono::duration<double>(time).count();
}

}  // namespace nightsweep
