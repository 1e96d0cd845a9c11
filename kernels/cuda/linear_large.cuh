// From 33 rows on: bound by the tensor cores.
//
// A warp works on 32 outputs by 64 or 128 rows. Its weights go from memory into registers a chunk
// of columns ahead and are decoded there, once for all rows of the tile; the input comes through a
// ring of stages in shared memory, by asynchronous copies. A block does the splits of the columns
// in turn and keeps their sum in a place of its own in memory; or, when there are too few tiles for
// the machine, each split is the work of another block, and the last to arrive adds them in order.
#pragma once

#include "kernels/cuda/linear_mma.cuh"

namespace nightsweep::cuda {

__device__ __forceinline__ void copy16_async(uint32_t shared, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <QuantType kType, int kPanels, int kGroups, int kWarps, int kStages, int kMinBlocks>
__global__ void __launch_bounds__(32 * kWarps, kMinBlocks)
    linear_large(const __grid_constant__ LinearArgs args) {
  using Format = FormatOf<kType>;
  constexpr PackedLayout kLayout = packed_layout(kType);
  constexpr bool kBlocked = kLayout.block_chunks == 4;
  constexpr uint32_t kThreads = 32 * kWarps;
  constexpr uint32_t kStageBytes = kGroups * kInputChunkBytes;
  constexpr uint32_t kFragments = kPanels * kGroups;
  extern __shared__ __align__(16) uint8_t stages[];
  __shared__ bool is_last_split;

  wait_for_earlier();
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t g = lane / 4;
  const size_t panel_bytes = kLayout.panel_bytes(args.n_chunks);
  const uint32_t n_input_groups = (args.rows + 7) / 8;
  const uint32_t n_row_tiles = (n_input_groups + kGroups - 1) / kGroups;
  const uint32_t splits_in_turn = args.splits_in_turn;
  const uint32_t n_units = args.n_tiles * n_row_tiles * (kSplits / splits_in_turn);
  const uint32_t stages_at = static_cast<uint32_t>(__cvta_generic_to_shared(stages));

  for (uint32_t unit = blockIdx.x; unit < n_units; unit += gridDim.x) {
    // Blocks that run together share their weights first.
    const uint32_t row_tile = unit % n_row_tiles;
    const uint32_t tile_and_split = unit / n_row_tiles;
    const uint32_t tile_index = tile_and_split % args.n_tiles;
    const uint32_t first_split = tile_and_split / args.n_tiles * splits_in_turn;
    const uint32_t begin = split_begin(args.n_chunks, first_split);
    const uint32_t end = split_begin(args.n_chunks, first_split + splits_in_turn);
    const PartArgs& part = part_of_tile(args, tile_index);
    const uint32_t first_panel = ((tile_index - part.first_tile) * kWarps + warp) * kPanels;
    const uint32_t last_panel = (part.n_rows - 1) / kPanel;
    const uint8_t* panel[kPanels];
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
      panel[p] = part.weight + min(first_panel + p, last_panel) * panel_bytes;

    // Groups of rows past the end read the last one; their sums go nowhere.
    const auto fill_stage = [&](uint32_t chunk) {
      if (chunk < end) {
        const uint32_t stage = stages_at + (chunk % kStages) * kStageBytes;
        constexpr uint32_t kPieces = kStageBytes / 16;
#pragma unroll
        for (uint32_t i = 0; i < kPieces / kThreads; ++i) {
          const uint32_t piece = i * kThreads + threadIdx.x;
          const uint32_t group =
              min(row_tile * kGroups + piece / (kInputChunkBytes / 16), n_input_groups - 1);
          copy16_async(
              stage + 16 * piece, args.input +
                                      (size_t{group} * args.n_chunks + chunk) * kInputChunkBytes +
                                      16 * (piece % (kInputChunkBytes / 16)));
        }
      }
      commit_copies();
    };

    typename Format::Bits bits[kPanels];
    typename Format::Header headers[kPanels];
    LanePointers<kType> load_at[kPanels];
#pragma unroll
    for (int p = 0; p < kPanels; ++p)
      load_at[p].set(panel[p], begin, lane);
    // Of chunk c of the block where the pointers are.
    const auto load_bits = [&](typename Format::Bits(&to)[kPanels], int c) {
#pragma unroll
      for (int p = 0; p < kPanels; ++p) {
        to[p].load(load_at[p], c * (kBlocked ? kLayout.chunk_bytes() : kLayout.block_bytes()));
      }
    };
    const auto load_headers = [&](int c) {
#pragma unroll
      for (int p = 0; p < kPanels; ++p) {
        Format::load_header(headers[p], load_at[p], kBlocked ? 0 : c * kLayout.block_bytes(), g);
      }
    };
    const auto advance_load = [&] {
#pragma unroll
      for (int p = 0; p < kPanels; ++p)
        load_at[p].advance(kBlocked ? 1 : 4);
    };

    float sums[kPanels][kGroups][4] = {};
    uint32_t split = first_split;
    // Ends split `split`: its sums are set aside, added to those before it, or finished.
    const auto finish_split = [&] {
      const bool in_turn = splits_in_turn != 1;
      const size_t place =
          in_turn ? blockIdx.x : (size_t{row_tile} * args.n_tiles + tile_index) * kSplits + split;
      float4* const mine = args.partials + place * kFragments * kThreads + threadIdx.x;
      const bool is_final = split + 1 == kSplits;
      if (in_turn) {
#pragma unroll
        for (int p = 0; p < kPanels; ++p) {
#pragma unroll
          for (int n = 0; n < kGroups; ++n) {
            float(&v)[4] = sums[p][n];
            float4* const at = mine + (p * kGroups + n) * kThreads;
            if (split > 0) {
              const float4 before = __ldcg(at);
              v[0] = before.x + v[0];
              v[1] = before.y + v[1];
              v[2] = before.z + v[2];
              v[3] = before.w + v[3];
            }
            if (!is_final) __stcg(at, make_float4(v[0], v[1], v[2], v[3]));
          }
        }
        if (!is_final) {
#pragma unroll
          for (int p = 0; p < kPanels; ++p) {
#pragma unroll
            for (int n = 0; n < kGroups; ++n) {
#pragma unroll
              for (int i = 0; i < 4; ++i)
                sums[p][n][i] = 0.0F;
            }
          }
          return;
        }
      } else {
#pragma unroll
        for (int p = 0; p < kPanels; ++p) {
#pragma unroll
          for (int n = 0; n < kGroups; ++n) {
            const float(&v)[4] = sums[p][n];
            __stcg(mine + (p * kGroups + n) * kThreads, make_float4(v[0], v[1], v[2], v[3]));
          }
        }
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
          uint32_t* const counter = args.arrived + size_t{row_tile} * args.n_tiles + tile_index;
          const uint32_t before = atomicAdd(counter, 1U);
          is_last_split = before == kSplits - 1;
          if (is_last_split) *counter = 0;
        }
        __syncthreads();
        if (!is_last_split) return;
        __threadfence();
        const float4* const all = mine - size_t{split} * kFragments * kThreads;
#pragma unroll
        for (int p = 0; p < kPanels; ++p) {
#pragma unroll
          for (int n = 0; n < kGroups; ++n) {
            float(&v)[4] = sums[p][n];
            const float4* const at = all + (p * kGroups + n) * kThreads;
            float4 total = __ldcg(at);
#pragma unroll
            for (uint32_t s = 1; s < kSplits; ++s) {
              const float4 next = __ldcg(at + size_t{s} * kFragments * kThreads);
              total.x += next.x;
              total.y += next.y;
              total.z += next.z;
              total.w += next.w;
            }
            v[0] = total.x;
            v[1] = total.y;
            v[2] = total.z;
            v[3] = total.w;
          }
        }
      }
#pragma unroll
      for (int p = 0; p < kPanels; ++p) {
        const PanelOutput to =
            panel_output<kType>(part, panel[p], (first_panel + p) * kPanel, lane);
#pragma unroll
        for (int first = 0; first < kGroups; first += 2) {
          float v[2][4];
#pragma unroll
          for (int i = 0; i < 8; ++i)
            v[i / 4][i % 4] = sums[p][first + i / 4][i % 4];
          store_fragments(args, part, to, 8 * (row_tile * kGroups + first), lane, v);
        }
      }
    };

    __syncthreads();  // all have read the stages of the unit before
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i)
      fill_stage(begin + i);
    if (begin < end) {
      load_bits(bits, 0);
      load_headers(0);
    }

    uint32_t split_end = split_begin(args.n_chunks, split + 1);
    while (split_end == begin && split + 1 < first_split + splits_in_turn) {
      finish_split();
      ++split;
      split_end = split_begin(args.n_chunks, split + 1);
    }
    for (uint32_t block = begin; block < end; block += 4) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const uint32_t chunk = block + c;
        if (!kBlocked && c > 0 && chunk >= end) break;
        wait_for_copies<kStages - 2>();
        __syncthreads();
        fill_stage(chunk + kStages - 1);

        typename Format::Scales scales[kPanels];
#pragma unroll
        for (int p = 0; p < kPanels; ++p)
          Format::make_scales(scales[p], headers[p], c);
        typename Format::Bits next_bits[kPanels];
        if (c == 3) advance_load();
        if (chunk + 1 < end) {
          load_bits(next_bits, (c + 1) % 4);
          if (!kBlocked || c == 3) load_headers((c + 1) % 4);
        }

        const uint8_t* const stage = stages + (chunk % kStages) * kStageBytes + 16 * lane;
        const auto run_half = [&]<int kHalf>() {
          uint32_t a[kPanels][2][4];
#pragma unroll
          for (int p = 0; p < kPanels; ++p) {
            Format::template decode<2 * kHalf>(a[p][0], bits[p], scales[p]);
            Format::template decode<2 * kHalf + 1>(a[p][1], bits[p], scales[p]);
          }
          constexpr int kTogether = kGroups < 4 ? kGroups : 4;
#pragma unroll
          for (int first = 0; first < kGroups; first += kTogether) {
            uint4 x[kTogether];
#pragma unroll
            for (int n = 0; n < kTogether; ++n) {
              x[n] = *reinterpret_cast<const uint4*>(
                  stage + (first + n) * kInputChunkBytes + 512 * kHalf);
            }
#pragma unroll
            for (int p = 0; p < kPanels; ++p) {
#pragma unroll
              for (int n = 0; n < kTogether; ++n)
                multiply(sums[p][first + n], a[p][0], x[n].x, x[n].y);
            }
#pragma unroll
            for (int p = 0; p < kPanels; ++p) {
#pragma unroll
              for (int n = 0; n < kTogether; ++n)
                multiply(sums[p][first + n], a[p][1], x[n].z, x[n].w);
            }
          }
        };
        run_half.template operator()<0>();
        run_half.template operator()<1>();
#pragma unroll
        for (int p = 0; p < kPanels; ++p)
          bits[p] = next_bits[p];
      }
      while (block + 4 >= split_end && split + 1 < first_split + splits_in_turn) {
        finish_split();
        ++split;
        split_end = split_begin(args.n_chunks, split + 1);
      }
    }
    finish_split();
  }
}

}  // namespace nightsweep::cuda
