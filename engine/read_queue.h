// ReadQueue: whole ranges out of raw reads. Cuts them into pieces, keeps many in flight, goes on
// after short reads, holds a rate, and turns what goes wrong into an Error.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "engine/file_reader.h"

namespace nightsweep {

// Bytes [offset, offset + size_bytes) of a file; offset, size and address are aligned as the
// reader asks. The file may end after `needed_bytes` of them.
struct ReadRange {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  uint64_t needed_bytes = 0;
  std::byte* into = nullptr;
  uint64_t tag = 0;  // the caller's; comes back when all needed bytes are there
};

// The aligned range that covers bytes [offset, offset + size_bytes); `into` is where the covering
// range begins, so byte `offset` lands at into + offset % kDirectAlignment.
ReadRange covering_range(uint32_t file, uint64_t offset, uint64_t size_bytes, std::byte* into);

// Lets bytes pass at a rate, each paid for before it passes. 0: everything passes.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RateLimit(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}
  // How long the next `size_bytes` must still wait; zero: they pass now, and pass() must follow.
  Clock::duration delay(uint64_t size_bytes, Clock::time_point now);
  void pass() { is_paid_ = false; }

 private:
  double bytes_per_s_;
  Clock::time_point next_ = {};
  bool is_paid_ = false;
};

// Used by one thread. Destroying it waits for the reads in flight.
class ReadQueue {
 public:
  static constexpr uint64_t kPieceBytes = 1 << 20;

  // bytes_per_s: a throttle; 0: none. `reader` must outlive it and is used by nobody else.
  explicit ReadQueue(
      FileReader& reader,
      double bytes_per_s = 0,
      uint64_t piece_bytes = kPieceBytes);
  ~ReadQueue();
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  void push(const ReadRange& range);
  bool is_idle() const { return waiting_.empty() && n_in_flight_ == 0; }
  // Fewer pieces wait than may be in flight.
  bool wants_more() const { return waiting_.size() < reader_.depth(); }

  // Starts what may start, waits for a read to end (or for the throttle, at most kMaxSleep) and
  // gives the tags of the ranges that are now complete; valid until the next call.
  // Throws Error(model) when a file has ended or changed, Error(storage) when the disk failed.
  // REQUIRES: not is_idle().
  const std::vector<uint64_t>& advance();

  // Time in which at least one read was in flight.
  double busy_s() const { return busy_s_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Part of a range. What a short read has brought is cut off its front.
  struct Piece {
    uint32_t range = 0;  // index into ranges_
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
    uint64_t needed_bytes = 0;
    std::byte* into = nullptr;
    uint32_t n_stalls = 0;
  };
  struct ActiveRange {
    uint64_t tag = 0;
    uint32_t file = 0;
    uint32_t n_pieces_left = 0;
  };

  Clock::duration start_pieces();
  void finish(uint32_t slot, int64_t result);
  [[noreturn]] void fail_read(const Piece& piece, int error_number) const;
  [[noreturn]] void fail_end_of_file(const Piece& piece, uint64_t found_bytes) const;

  FileReader& reader_;
  const uint64_t piece_bytes_;
  RateLimit rate_;
  std::deque<Piece> waiting_;
  std::vector<Piece> slots_;  // by slot: the piece in flight
  std::vector<uint32_t> free_slots_;
  std::vector<ActiveRange> ranges_;
  std::vector<uint32_t> free_ranges_;
  std::vector<FileReadEnd> ended_;
  std::vector<uint64_t> complete_;
  uint32_t n_in_flight_ = 0;
  Clock::time_point busy_since_ = {};
  double busy_s_ = 0;
};

}  // namespace nightsweep
