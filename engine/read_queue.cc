#include "engine/read_queue.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>

#include "base/error.h"

namespace nightsweep {

namespace {

// Who throttles must still notice soon that it shall stop.
constexpr auto kMaxSleep = std::chrono::milliseconds(20);
// A thread that slept too long makes up for it by so much.
constexpr auto kMaxCredit = std::chrono::milliseconds(5);
// An unaligned short read is asked for again; a kernel that gives the same for ever is a fault.
constexpr uint32_t kMaxStalls = 64;

}  // namespace

ReadRange covering_range(uint32_t file, uint64_t offset, uint64_t size_bytes, std::byte* into) {
  const uint64_t begin = align_down(offset, kDirectAlignment);
  const uint64_t end = offset + size_bytes;
  return {file, begin, align_up(end, kDirectAlignment) - begin, end - begin, into, 0};
}

RateLimit::Clock::duration RateLimit::delay(uint64_t size_bytes, Clock::time_point now) {
  if (bytes_per_s_ <= 0) return {};
  if (!is_paid_) {
    const std::chrono::duration<double> price(static_cast<double>(size_bytes) / bytes_per_s_);
    next_ = std::max(next_, now - kMaxCredit) + std::chrono::duration_cast<Clock::duration>(price);
    is_paid_ = true;
  }
  return std::max(Clock::duration::zero(), next_ - now);
}

ReadQueue::ReadQueue(FileReader& reader, double bytes_per_s, uint64_t piece_bytes)
    : reader_(reader), piece_bytes_(piece_bytes), rate_(bytes_per_s), slots_(reader.depth()) {
  for (uint32_t slot = reader.depth(); slot > 0; --slot)
    free_slots_.push_back(slot - 1);
}

ReadQueue::~ReadQueue() {
  while (n_in_flight_ > 0) {
    ended_.clear();
    reader_.wait(ended_);
    n_in_flight_ -= static_cast<uint32_t>(ended_.size());
  }
}

void ReadQueue::push(const ReadRange& range) {
  uint32_t index = 0;
  if (free_ranges_.empty()) {
    index = static_cast<uint32_t>(ranges_.size());
    ranges_.emplace_back();
  } else {
    index = free_ranges_.back();
    free_ranges_.pop_back();
  }
  ActiveRange& active = ranges_[index];
  active = {range.tag, range.file, 0};
  for (uint64_t at = 0; at < range.needed_bytes; at += piece_bytes_) {
    const uint64_t size_bytes = std::min(piece_bytes_, range.size_bytes - at);
    const uint64_t needed_bytes = std::min(size_bytes, range.needed_bytes - at);
    waiting_.push_back({index, range.offset + at, size_bytes, needed_bytes, range.into + at, 0});
    ++active.n_pieces_left;
  }
}

RateLimit::Clock::duration ReadQueue::start_pieces() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    const Piece& piece = waiting_.front();
    const Clock::time_point now = Clock::now();
    const Clock::duration delay = rate_.delay(piece.size_bytes, now);
    if (delay > Clock::duration::zero()) return delay;
    rate_.pass();
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = piece;
    waiting_.pop_front();
    if (n_in_flight_++ == 0) busy_since_ = now;
    const Piece& started = slots_[slot];
    reader_.submit(
        {ranges_[started.range].file, started.offset, started.size_bytes, started.into, slot});
  }
  return {};
}

const std::vector<uint64_t>& ReadQueue::advance() {
  complete_.clear();
  const Clock::duration delay = start_pieces();
  if (n_in_flight_ == 0) {
    std::this_thread::sleep_for(std::min<Clock::duration>(delay, kMaxSleep));
    return complete_;
  }
  ended_.clear();
  reader_.wait(ended_);
  n_in_flight_ -= static_cast<uint32_t>(ended_.size());
  const Clock::time_point now = Clock::now();
  busy_s_ += std::chrono::duration<double>(now - busy_since_).count();
  busy_since_ = now;
  for (const FileReadEnd& end : ended_)
    finish(static_cast<uint32_t>(end.tag), end.result);
  return complete_;
}

void ReadQueue::finish(uint32_t slot, int64_t result) {
  Piece piece = slots_[slot];
  free_slots_.push_back(slot);
  ActiveRange& range = ranges_[piece.range];

  if (result < 0 && result != -EINTR && result != -EAGAIN) {
    fail_read(piece, static_cast<int>(-result));
  }
  const auto n_bytes = static_cast<uint64_t>(std::max<int64_t>(result, 0));
  if (n_bytes < piece.needed_bytes) {
    if (result == 0) fail_end_of_file(piece, 0);
    const uint64_t kept = align_down(n_bytes, reader_.alignment());
    if (n_bytes > 0 && kept == 0) {
      if (reader_.files().current_bytes(range.file) <= piece.offset + n_bytes) {
        fail_end_of_file(piece, n_bytes);
      }
      if (++piece.n_stalls == kMaxStalls) fail_read(piece, EIO);
    }
    piece.offset += kept;
    piece.size_bytes -= kept;
    piece.needed_bytes -= kept;
    piece.into += kept;
    waiting_.push_front(piece);
    return;
  }
  if (--range.n_pieces_left == 0) {
    complete_.push_back(range.tag);
    free_ranges_.push_back(piece.range);
  }
}

void ReadQueue::fail_read(const Piece& piece, int error_number) const {
  const uint32_t file = ranges_[piece.range].file;
  reader_.files().check_unchanged(file);
  fail(
      ErrorKind::storage,
      "{}: reading {} bytes at offset {}: {}; look for errors of the disk (dmesg), then "
      "start again",
      reader_.files().path(file), piece.size_bytes, piece.offset, errno_text(error_number));
}

void ReadQueue::fail_end_of_file(const Piece& piece, uint64_t found_bytes) const {
  const uint32_t file = ranges_[piece.range].file;
  fail(
      ErrorKind::model,
      "{}: expected {} bytes at offset {}, found {} and the end of the file (it had {} bytes when "
      "it was opened): it was truncated while in use; put the whole file back and start again",
      reader_.files().path(file), piece.needed_bytes, piece.offset, found_bytes,
      reader_.files().size_bytes(file));
}

}  // namespace nightsweep
