// Up to 32 rows: bound by the bytes of the weights.
//
// A block of four warps works on 16 or 32 outputs at a time, one warp a split of the columns; warps
// meet only to add their sums, once a tile. Weights go from memory straight into registers, a unit
// of columns (or two) ahead of their use and on over the end of a tile; each register is filled
// again as soon as it has been used. The input stays in the first-level cache. The first weights
// are asked for while the kernel before still runs.
//
// Splits differ in length, so warps end a tile at different places of the ring of registers. The
// barrier stands outside of the code that is unrolled over that ring: all warps of a block wait at
// the same instruction.
#pragma once

#include "kernels/cuda/linear_mma.cuh"

namespace nightsweep::cuda {

// Chunks in a unit, and units ahead: what fits into about 50 registers.
template <QuantType kType>
constexpr int unit_chunks() {
  return packed_layout(kType).quant_bytes == 512    ? 4
         : packed_layout(kType).quant_bytes == 1024 ? 2
                                                    : 1;
}

template <QuantType kType, int kPanels, int kGroups, int kAhead>
__global__ void __launch_bounds__(128, kGroups == 1 ? 4 : 3)
    linear_small(const __grid_constant__ LinearArgs args) {
  using Format = FormatOf<kType>;
  constexpr PackedLayout kLayout = packed_layout(kType);
  constexpr int kUnit = unit_chunks<kType>();
  constexpr bool kBlocked = kLayout.block_chunks == 4;
  constexpr int kHeaders = kBlocked ? 1 : kUnit;
  constexpr int kUnitBlocks = kBlocked ? 1 : kUnit;
  constexpr int kFragments = kPanels * kGroups;
  constexpr bool kInputAhead = kGroups <= 2;  // by a chunk; more rows have no registers for it
  __shared__ float partial[2][kSplits - 1][kFragments][4][32];

  const uint32_t lane = threadIdx.x % 32;
  const uint32_t split = threadIdx.x / 32;
  const uint32_t g = lane / 4;
  const uint32_t begin = split_begin(args.n_chunks, split);
  const uint32_t end = split_begin(args.n_chunks, split + 1);
  const size_t panel_bytes = kLayout.panel_bytes(args.n_chunks);

  struct Tile {
    const PartArgs* part;
    const uint8_t* panel[kPanels];
    uint32_t first_output;
  };
  const auto make_tile = [&](uint32_t index) {
    Tile tile;
    tile.part = &part_of_tile(args, index);
    const uint32_t first_panel = (index - tile.part->first_tile) * kPanels;
    const uint32_t last_panel = (tile.part->n_rows - 1) / kPanel;
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
      tile.panel[p] = tile.part->weight + min(first_panel + p, last_panel) * panel_bytes;
    tile.first_output = first_panel * kPanel;
    return tile;
  };

  typename Format::Bits bits[kAhead][kPanels][kUnit];
  typename Format::Header headers[kAhead][kPanels][kHeaders];

  // Where the next unit to be loaded is.
  uint32_t load_tile = blockIdx.x;
  uint32_t load_chunk = begin;
  LanePointers<kType> load_at[kPanels] = {};
  bool can_load = load_tile < args.n_tiles && begin < end;
  const auto start_load_tile = [&] {
    const Tile tile = make_tile(load_tile);
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
      load_at[p].set(tile.panel[p], begin, lane);
  };
  if (can_load) start_load_tile();
  const auto advance_load = [&] {
    load_chunk += kUnit;
    if (load_chunk < end) {
#pragma unroll
      for (int p = 0; p < kPanels; ++p)
        load_at[p].advance(kUnitBlocks);
      return;
    }
    load_chunk = begin;
    load_tile += gridDim.x;
    can_load = load_tile < args.n_tiles;
    if (can_load) start_load_tile();
  };
  const auto load_bits = [&](int slot, int c) {
    bool is_there = can_load;
    if constexpr (!kBlocked && kUnit > 1) is_there &= load_chunk + c < end;
    if (!is_there) return;
#pragma unroll
    for (int p = 0; p < kPanels; ++p) {
      const uint32_t offset = c * (kBlocked ? kLayout.chunk_bytes() : kLayout.block_bytes());
      bits[slot][p][c].load(load_at[p], offset);
      if constexpr (!kBlocked) {
        Format::load_header(headers[slot][p][c], load_at[p], offset, g);
      }
    }
  };
  const auto load_block_headers = [&](int slot) {
    if constexpr (kBlocked) {
      if (!can_load) return;
#pragma unroll
      for (int p = 0; p < kPanels; ++p)
        Format::load_header(headers[slot][p][0], load_at[p], 0, g);
    }
  };
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) {
    load_block_headers(slot);
#pragma unroll
    for (int c = 0; c < kUnit; ++c)
      load_bits(slot, c);
    if (can_load) advance_load();
  }
  wait_for_input(args);

  // The input of a chunk: of each group of 8 rows, 2 x 16 bytes. Lanes of rows past the end read
  // the last row; their sums go nowhere. No __ldg: it is not constant while this kernel lives.
  const uint8_t* input_rows[kGroups];
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
    const uint32_t row = min(8 * n + g, args.rows - 1);
    input_rows[n] = args.input + size_t{row / 8} * args.n_chunks * kInputChunkBytes +
                    64 * (row % 8) + 16 * (lane % 4);
  }
  const auto load_input = [&](uint4(&to)[kGroups][2], uint32_t first, int chunks_on) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const uint8_t* const at = input_rows[n] + first * kInputChunkBytes;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        to[n][half] =
            *reinterpret_cast<const uint4*>(at + chunks_on * kInputChunkBytes + 512 * half);
      }
    }
  };
  uint4 x[kGroups][2];
  if (kInputAhead && begin < end) load_input(x, begin, 0);

  uint32_t chunk = begin;
  uint32_t tile_index = blockIdx.x;
  uint32_t n_done = 0;
  float sums[kPanels][kGroups][4] = {};

  const auto finish_tile = [&] {
    const uint32_t buffer = n_done % 2;
    if (split > 0) {
#pragma unroll
      for (int p = 0; p < kPanels; ++p) {
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            partial[buffer][split - 1][p * kGroups + n][i][lane] = sums[p][n][i];
        }
      }
    }
    __syncthreads();
    if (split == 0) {
      const Tile tile = make_tile(tile_index);
#pragma unroll
      for (int p = 0; p < kPanels; ++p) {
        const PanelOutput to =
            panel_output<kType>(*tile.part, tile.panel[p], tile.first_output + p * kPanel, lane);
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
#pragma unroll
            for (uint32_t s = 0; s + 1 < kSplits; ++s)
              sums[p][n][i] += partial[buffer][s][p * kGroups + n][i][lane];
          }
        }
        store_fragments(args, *tile.part, to, 0, lane, sums[p]);
      }
    }
#pragma unroll
    for (int p = 0; p < kPanels; ++p) {
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[p][n][i] = 0.0F;
      }
    }
    ++n_done;
    tile_index += gridDim.x;
  };

  // One unit of the current tile, from slot `slot`, which is filled again on the way. kWhole: it
  // has all its chunks.
  const auto run_chunks = [&]<bool kWhole>(int slot) {
    const uint32_t next_unit = chunk + kUnit < end ? chunk + kUnit : begin;
#pragma unroll
    for (int c = 0; c < kUnit; ++c) {
      if (!kWhole && chunk + c >= end) {
        load_bits(slot, c);
        continue;
      }
      const bool is_last = c + 1 == kUnit || (!kWhole && chunk + c + 1 >= end);
      uint4 next_x[kGroups][2];
      if (!kInputAhead) {
        load_input(x, chunk, c);
      } else if (is_last) {
        load_input(next_x, next_unit, 0);
      } else {
        load_input(next_x, chunk, c + 1);
      }
      uint32_t a[kPanels][4][4];
#pragma unroll
      for (int p = 0; p < kPanels; ++p) {
        typename Format::Scales scales;
        Format::make_scales(scales, headers[slot][p][kBlocked ? 0 : c], c);
        const typename Format::Bits& from = bits[slot][p][c];
        Format::template decode<0>(a[p][0], from, scales);
        Format::template decode<1>(a[p][1], from, scales);
        Format::template decode<2>(a[p][2], from, scales);
        Format::template decode<3>(a[p][3], from, scales);
      }
      load_bits(slot, c);
      if (c + 1 == kUnit) load_block_headers(slot);
#pragma unroll
      for (int s = 0; s < 4; ++s) {
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
          const uint4& v = x[n][s / 2];
#pragma unroll
          for (int p = 0; p < kPanels; ++p) {
            multiply(sums[p][n], a[p][s], s % 2 == 0 ? v.x : v.z, s % 2 == 0 ? v.y : v.w);
          }
        }
      }
#pragma unroll
      for (int n = 0; kInputAhead && n < kGroups; ++n) {
        x[n][0] = next_x[n][0];
        x[n][1] = next_x[n][1];
      }
    }
  };
  // Whether the tile ends with it.
  const auto run_unit = [&](int slot) {
    if (kBlocked || kUnit == 1 || chunk + kUnit <= end) {
      run_chunks.template operator()<true>(slot);
    } else {
      run_chunks.template operator()<false>(slot);
    }
    if (can_load) advance_load();
    chunk += kUnit;
    if (chunk < end) return false;
    chunk = begin;
    return true;
  };

  int next_slot = 0;
  while (tile_index < args.n_tiles) {
    bool is_over = begin >= end;
    while (!is_over) {
#pragma unroll
      for (int slot = 0; slot < kAhead; ++slot) {
        if (is_over || next_slot != slot) continue;
        is_over = run_unit(slot);
        next_slot = slot + 1 == kAhead ? 0 : slot + 1;
      }
    }
    finish_tile();
  }
  wait_for_neighbour(args);
}

}  // namespace nightsweep::cuda
