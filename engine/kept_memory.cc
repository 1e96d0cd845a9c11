#include "engine/kept_memory.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/file_reader.h"
#include "engine/poison.h"

namespace nightsweep {

KeptMemory::KeptMemory(Device& device, const std::vector<uint64_t>& sizes_bytes, Options options)
    : device_(device), options_(std::move(options)), places_(sizes_bytes.size()) {
  for (size_t slice = 0; slice < sizes_bytes.size(); ++slice) {
    if (sizes_bytes[slice] == 0) continue;
    const uint64_t size_bytes = align_up(sizes_bytes[slice], kDirectAlignment);
    if (pieces_.empty() || pieces_.back().size_bytes + size_bytes > options_.piece_bytes) {
      pieces_.emplace_back();
    }
    Piece& piece = pieces_.back();
    places_[slice] = {true, static_cast<uint32_t>(pieces_.size() - 1), piece.size_bytes};
    piece.size_bytes += size_bytes;
    wanted_bytes_ += size_bytes;
  }
}

void KeptMemory::start(std::function<void()> on_change) {
  on_change_ = std::move(on_change);
  if (!pieces_.empty()) thread_ = std::thread([this] { run(); });
}

void KeptMemory::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void KeptMemory::run() {
  uint64_t made_bytes = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Piece piece;
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      piece.size_bytes = pieces_[i].size_bytes;
    }
    std::string why = make(piece);
    const bool is_refused = !why.empty();
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      if (is_refused) {
        why_refused_ = std::move(why);
      } else {
        pieces_[i].memory = std::move(piece.memory);
        ++n_ready_;
      }
    }
    if (is_refused) {
      if (!options_.must_keep_all) {
        log_warning(
            "weights kept in RAM: {} of {}; the rest is read from the disk in every sweep ({})",
            size_text(made_bytes), size_text(wanted_bytes_), why_refused_);
      }
      on_change_();
      return;
    }
    made_bytes += piece.size_bytes;
    on_change_();
  }
}

// Empty, or why it is refused.
std::string KeptMemory::make(Piece& piece) {
  try {
    const uint64_t available_bytes = options_.available_bytes();
    if (available_bytes < piece.size_bytes + options_.margin_bytes) {
      return format(
          "{} are available (MemAvailable) and other programs keep {}", size_text(available_bytes),
          size_text(options_.margin_bytes));
    }
    piece.memory = device_.allocate_host(piece.size_bytes);
    poison(std::span(piece.memory->data(), piece.size_bytes));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

KeptMemory::State KeptMemory::find(uint32_t slice, std::byte*& place) const {
  const Place& at = places_[slice];
  const std::lock_guard lock(mutex_);
  if (at.piece < n_ready_) {
    place = pieces_[at.piece].memory->data() + at.offset;
    return State::ready;
  }
  if (why_refused_.empty()) return State::pending;
  if (options_.must_keep_all) {
    fail(
        ErrorKind::device,
        "--source pinned: {} of weights must be page-locked: {}; lower --ram or give --source auto",
        size_text(wanted_bytes_), why_refused_);
  }
  return State::refused;
}

uint64_t KeptMemory::locked_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t total = 0;
  for (size_t i = 0; i < n_ready_; ++i)
    total += pieces_[i].size_bytes;
  return total;
}

}  // namespace nightsweep
