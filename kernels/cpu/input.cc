#include "kernels/cpu/input.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/memory.h"

namespace nightsweep::cpu {
namespace {

// Below this many values a parallel region costs more than it saves.
constexpr size_t kSerialInputValues = 16384;

size_t tiles_bytes(
    uint32_t n_rows,
    uint32_t n_cols,
    size_t (*tile_bytes)(uint32_t n_rows, uint32_t n_cols)) {
  const size_t whole = n_rows / kMaxTileRows * tile_bytes(kMaxTileRows, n_cols);
  const uint32_t rest = n_rows % kMaxTileRows;
  return rest == 0 ? whole : whole + tile_bytes(rest, n_cols);
}

}  // namespace

void Input::reserve(uint32_t max_rows, uint32_t max_cols) {
  max_rows_ = max_rows;
  max_cols_ = max_cols;
  const uint32_t whole_rows = (max_rows + kMaxTileRows - 1) / kMaxTileRows * kMaxTileRows;
  rounded_.memory = allocate_memory(tiles_bytes(whole_rows, max_cols, rounded_tile_bytes));
  float_.memory = allocate_memory(tiles_bytes(whole_rows, max_cols, float_tile_bytes));
  rounded_.tiles.reserve(whole_rows / kMaxTileRows);
  float_.tiles.reserve(whole_rows / kMaxTileRows);
}

void Input::set(const float* x, uint32_t n_rows, uint32_t n_cols) {
  if (n_rows > max_rows_ || n_cols > max_cols_) {
    fail(
        ErrorKind::internal, "an input of {} x {} was set, but room was reserved for {} x {}",
        n_rows, n_cols, max_rows_, max_cols_);
  }
  x_ = x;
  n_rows_ = n_rows;
  n_cols_ = n_cols;
  rounded_.is_made = false;
  float_.is_made = false;
}

size_t Input::size_bytes() const {
  return tiles_bytes(n_rows_, n_cols_, rounded_tile_bytes);
}

const InputTiles& Input::rounded() {
  if (!rounded_.is_made) {
    lay_out(rounded_, rounded_tile_bytes);
    const auto round = [&](uint32_t t) {
      const InputTile& tile = rounded_.tiles[t];
      kernels_->round_tile(x_ + size_t{tile.first_row} * n_cols_, tile.n_rows, n_cols_, tile.data);
    };
    const auto n_tiles = static_cast<uint32_t>(rounded_.tiles.size());
    if (size_t{n_rows_} * n_cols_ < kSerialInputValues) {
      for (uint32_t t = 0; t < n_tiles; ++t)
        round(t);
    } else {
      pool_->run(n_tiles, [&](uint32_t t, uint32_t) { round(t); });
    }
  }
  return rounded_.view;
}

const InputTiles& Input::in_float() {
  if (!float_.is_made) {
    lay_out(float_, float_tile_bytes);
    pool_->run(float_.view.n_tiles, [&](uint32_t t, uint32_t) {
      const InputTile& tile = float_.tiles[t];
      kernels_->float_tile(x_ + size_t{tile.first_row} * n_cols_, tile.n_rows, n_cols_, tile.data);
    });
  }
  return float_.view;
}

void Input::lay_out(Form& form, size_t (*tile_bytes)(uint32_t n_rows, uint32_t n_cols)) {
  form.tiles.clear();
  std::byte* data = form.memory->data();
  for (uint32_t row = 0; row < n_rows_; row += kMaxTileRows) {
    const uint32_t n = std::min(kMaxTileRows, n_rows_ - row);
    form.tiles.push_back({row, n, data});
    data += tile_bytes(n, n_cols_);
  }
  form.view = {n_cols_, static_cast<uint32_t>(form.tiles.size()), form.tiles.data()};
  form.is_made = true;
}

}  // namespace nightsweep::cpu
