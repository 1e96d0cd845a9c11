// ResidentSlices: the part of the weights that stays packed in the device's memory.
//
// A slice has a home before it has arrived: it comes with the first sweep, is packed into its home,
// and stays. Homes are made in pieces, so that some can be given back while the device runs and be
// made again later.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/file_reader.h"
#include "engine/weights.h"
#include "kernels/device.h"

namespace nightsweep {

class ResidentSlices {
 public:
  // Chooses slices whose packed size is at most budget_bytes, spread evenly over the sweep, and
  // makes their homes in pieces of about piece_bytes. `plan` and `device` must outlive it.
  ResidentSlices(
      const WeightPlan& plan,
      Device& device,
      uint64_t budget_bytes,
      uint64_t piece_bytes);

  bool has_home(uint32_t slice) const { return slices_[slice].home != nullptr; }
  bool holds(uint32_t slice) const { return slices_[slice].is_here; }
  // Packs its extents, in file layout, into its home: from memory of the host by Device::pack, from
  // the device's own by Device::repack. REQUIRES: has_home(slice).
  using Pack = void (Device::*)(const MatrixView& file, std::byte* packed);
  void fill(uint32_t slice, const std::vector<std::byte*>& extents, Pack pack);
  // Packed. REQUIRES: holds(slice).
  const std::vector<MatrixView>& matrices(uint32_t slice) const { return slices_[slice].matrices; }
  uint64_t size_bytes() const;  // of all homes
  bool holds_everything() const;

  // Reads and packs them all at once; `staging` (aligned to kDirectAlignment, at least
  // min_ring_bytes()) is where they pass. Returns what was read. REQUIRES: every slice of the plan
  // has a home. Throws as RingLoader does.
  uint64_t load(FileReader& reader, std::span<std::byte> staging, double disk_rate);

  // Pieces that have memory.
  size_t n_pieces() const { return n_made_; }
  const std::vector<uint32_t>& slices_of(size_t piece) const { return pieces_[piece].slices; }
  uint64_t bytes_of(size_t piece) const { return pieces_[piece].size_bytes; }
  // Gives the last one's memory back; its slices lose their homes. REQUIRES: no operator reads
  // them.
  void drop_last_piece();
  // Makes the piece again that was dropped last; its slices have homes and are not here.
  // Throws Error(device) where there is no memory for it. REQUIRES: one was dropped.
  const std::vector<uint32_t>& restore_piece();
  uint64_t dropped_piece_bytes() const;  // of the one that restore_piece() makes; 0: none

 private:
  struct Slice {
    std::byte* home = nullptr;
    bool is_here = false;
    std::vector<MatrixView> matrices;  // empty: it streams
  };
  struct Piece {
    std::vector<uint32_t> slices;
    uint64_t size_bytes = 0;
    std::unique_ptr<DeviceMemory> memory;
  };
  void make(Piece& piece);

  const WeightPlan& plan_;
  Device& device_;
  std::vector<Slice> slices_;  // by slice of the plan
  std::vector<Piece> pieces_;
  size_t n_made_ = 0;  // the first so many pieces have memory
};

}  // namespace nightsweep
