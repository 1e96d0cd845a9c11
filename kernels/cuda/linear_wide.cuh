// Many rows on Hopper (sm_90a), with warpgroup products: the same chain, and the same bits, as
// mma.sync gives; LinearOperator compares the two on the GPU before it uses this.
//
// A block works on 128 kTiles outputs by kRows rows. One warp brings the input and one the packed
// weights into rings of stages in shared memory, by bulk copies that run some chunks ahead. Two
// warpgroups decode the weights from there into registers, the A operand, once for all rows of the
// tile; their products read the input where it stands and run beside the decoding of the next half
// chunk. The first weights are brought while the kernel before still runs.
//
// The work of a launch is its tiles times the splits of the columns, in a row; every block takes an
// equal run of it. Splits of one tile that fall to one block are added by it; a tile that is cut
// between blocks is added up by the last of them, in order.
#pragma once

#include "kernels/cuda/linear_large.cuh"
#include "kernels/cuda/linear_mma.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace nightsweep::cuda {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  #define NIGHTSWEEP_WARPGROUP 1
#endif

// The run of a block: units [first, last) of n_units, a unit being one split of one tile.
__device__ __forceinline__ uint32_t run_begin(uint32_t block, uint32_t n_blocks, uint32_t n_units) {
  return static_cast<uint32_t>(uint64_t{block} * n_units / n_blocks);
}
__device__ __forceinline__ uint32_t
block_of_unit(uint32_t unit, uint32_t n_blocks, uint32_t n_units) {
  return static_cast<uint32_t>((uint64_t{unit + 1} * n_blocks - 1) / n_units);
}

// How the shared memory is used.
template <QuantType kType, int kTiles, int kRows>
struct WidePlan {
  static constexpr PackedLayout kLayout = packed_layout(kType);
  static constexpr bool kBlocked = kLayout.block_chunks == 4;
  // Chunks of weights that are copied together.
  static constexpr int kGroup = kLayout.quant_bytes == 512    ? 4
                                : kLayout.quant_bytes == 1024 ? 2
                                                              : 1;
  static constexpr int kInputStages = kRows == 128 ? 4
                                      : kRows == 64
                                          ? (kType == QuantType::f32 || kTiles == 1 ? 4 : 6)
                                          : 8;
  static constexpr int kWeightStages =
      kRows == 64 || (kRows == 128 && kType == QuantType::f32) ? 2 : 3;
  static constexpr uint32_t kPanels = 8 * kTiles;
  static constexpr uint32_t kPanelGroupBytes =
      kBlocked ? kLayout.block_bytes() : kGroup * kLayout.block_bytes();
  static constexpr uint32_t kInputStageBytes = kRows / 8 * kInputChunkBytes;
  static constexpr uint32_t kWeightStageBytes = kPanels * kPanelGroupBytes;
  // Sums of the splits before; with more rows they have no room here.
  static constexpr bool kSharedTotals = kRows <= 64;
  static constexpr uint32_t kTotalBytes = kSharedTotals ? 128 * kTiles * kRows * 4 : 0;
  static constexpr uint32_t kSharedBytes =
      1024 + kInputStages * kInputStageBytes + kWeightStages * kWeightStageBytes + kTotalBytes;
};
inline constexpr uint32_t kWideThreads = 256;  // that compute
// With 128 rows the computing warps take over registers of the copying ones, which works by
// warpgroups: two warps idle for it.
constexpr bool moves_registers(uint32_t rows) {
  return rows == 128;
}
constexpr uint32_t wide_block_threads(uint32_t rows) {
  return kWideThreads + (moves_registers(rows) ? 128 : 64);
}

template <QuantType kType, int kTiles, int kRows, int kMinBlocks>
__global__ void __launch_bounds__(wide_block_threads(kRows), kMinBlocks)
    linear_wide(const __grid_constant__ LinearArgs args) {
#ifdef NIGHTSWEEP_WARPGROUP
  using Format = FormatOf<kType>;
  using Plan = WidePlan<kType, kTiles, kRows>;
  constexpr PackedLayout kLayout = packed_layout(kType);
  constexpr bool kBlocked = Plan::kBlocked;
  constexpr int kGroup = Plan::kGroup;
  constexpr uint32_t kStages = Plan::kInputStages;
  constexpr uint32_t kWeightStages = Plan::kWeightStages;
  constexpr uint32_t kThreads = kWideThreads;
  constexpr uint32_t kGroups = kRows / 8;
  constexpr uint32_t kStageBytes = Plan::kInputStageBytes;
  constexpr uint32_t kFragments = kTiles * kGroups;
  constexpr uint32_t kWarps = kThreads / 32;
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t shared_at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t stages_at = (shared_at + 1023) / 1024 * 1024;
  const uint32_t weights_at = stages_at + kStages * kStageBytes;
  float4* const shared_totals = reinterpret_cast<float4*>(
      shared + (weights_at - shared_at) + kWeightStages * Plan::kWeightStageBytes);
  // Of each stage: that it has been filled, and that all warps (of weights: all threads) are done
  // with it.
  __shared__ __align__(8) uint64_t barriers[2 * (kStages + kWeightStages)];
  __shared__ uint32_t n_arrived;
  const uint32_t filled_at = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
  const uint32_t freed_at = filled_at + 8 * kStages;
  const uint32_t weights_filled_at = freed_at + 8 * kStages;
  const uint32_t weights_freed_at = weights_filled_at + 8 * kWeightStages;

  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t g = lane / 4;
  const size_t panel_bytes = kLayout.panel_bytes(args.n_chunks);
  const uint32_t n_input_groups = (args.rows + 7) / 8;
  const uint32_t n_row_tiles = (n_input_groups + kGroups - 1) / kGroups;
  const uint32_t n_units = args.n_tiles * n_row_tiles * kSplits;
  const uint32_t first_unit = run_begin(blockIdx.x, gridDim.x, n_units);
  const uint32_t last_unit = run_begin(blockIdx.x + 1, gridDim.x, n_units);
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages; ++i) {
      init_barrier(filled_at + 8 * i, 1);
      init_barrier(freed_at + 8 * i, kWarps);
    }
    for (uint32_t i = 0; i < kWeightStages; ++i) {
      init_barrier(weights_filled_at + 8 * i, 1);
      init_barrier(weights_freed_at + 8 * i, kThreads);
    }
    fence_barrier_init();
  }
  __syncthreads();

  // The chunks of a tile that are this block's: splits side by side.
  struct Span {
    uint32_t tile;
    uint32_t chunk;
    uint32_t end;
  };
  const auto span_of = [&](uint32_t tile) {
    const uint32_t first = max(tile * kSplits, first_unit) - tile * kSplits;
    const uint32_t last = min((tile + 1) * kSplits, last_unit) - tile * kSplits;
    return Span{tile, split_begin(args.n_chunks, first), split_begin(args.n_chunks, last)};
  };
  // From `tile` on, the first span that has chunks; tile `end_tile` if there is none.
  const uint32_t end_tile = (last_unit + kSplits - 1) / kSplits;
  const auto next_span = [&](uint32_t tile) {
    Span span{tile, 0, 0};
    for (; span.tile < end_tile; ++span.tile) {
      span = span_of(span.tile);
      if (span.chunk < span.end) break;
    }
    return span;
  };

  if (warp >= kWarps) {
    if constexpr (moves_registers(kRows)) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
      if (warp > kWarps + 1) return;
    }
    // The warps that copy: one the input, a chunk at a time (small copies would cost more than
    // their bytes); one the weights, a panel a lane.
    const bool brings_weights = warp == kWarps + 1;
    if (!brings_weights) wait_for_input(args);
    uint32_t stage = 0;
    uint32_t n_filled = 0;
    uint32_t weight_stage = 0;
    uint32_t n_weights_filled = 0;
    for (Span span = next_span(first_unit / kSplits); span.tile < end_tile;
         span = next_span(span.tile + 1)) {
      const uint32_t tile_index = span.tile / n_row_tiles;
      const PartArgs& part = part_of_tile(args, tile_index);
      // What is past the last row or panel is not copied, or copied again; its sums go nowhere.
      const uint32_t first_group = span.tile % n_row_tiles * kGroups;
      const uint32_t input_bytes = min(kGroups, n_input_groups - first_group) * kInputChunkBytes;
      const uint8_t* input = args.input + size_t{first_group} * args.n_chunks * kInputChunkBytes +
                             size_t{span.chunk} * input_bytes;
      const uint32_t panel =
          min((tile_index - part.first_tile) * Plan::kPanels + lane, (part.n_rows - 1) / kPanel);
      const uint8_t* weights = part.weight + panel * panel_bytes + kPanelHeaderBytes +
                               size_t{span.chunk / kLayout.block_chunks} * kLayout.block_bytes();
      for (uint32_t chunk = span.chunk; chunk < span.end; ++chunk) {
        if (brings_weights) {
          if ((chunk - span.chunk) % kGroup != 0) continue;
          const uint32_t filled = weights_filled_at + 8 * weight_stage;
          if (n_weights_filled >= kWeightStages) {
            wait_barrier(
                weights_freed_at + 8 * weight_stage, (n_weights_filled / kWeightStages - 1) % 2);
          }
          const uint32_t n_bytes =
              kBlocked ? kLayout.block_bytes()
                       : min(uint32_t{kGroup}, span.end - chunk) * kLayout.block_bytes();
          if (lane == 0) expect_bytes(filled, Plan::kPanels * n_bytes);
          __syncwarp();
          if (lane < Plan::kPanels) {
            copy_bulk(
                weights_at + weight_stage * Plan::kWeightStageBytes + lane * Plan::kPanelGroupBytes,
                weights, n_bytes, filled);
          }
          weights += Plan::kPanelGroupBytes;
          ++n_weights_filled;
          weight_stage = weight_stage + 1 == kWeightStages ? 0 : weight_stage + 1;
          continue;
        }
        const uint32_t filled = filled_at + 8 * stage;
        if (n_filled >= kStages) {
          wait_barrier(freed_at + 8 * stage, (n_filled / kStages - 1) % 2);
        }
        if (lane == 0) {
          expect_bytes(filled, input_bytes);
          copy_bulk(stages_at + stage * kStageBytes, input, input_bytes, filled);
        }
        input += input_bytes;
        ++n_filled;
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
    }
    return;
  }

  if constexpr (moves_registers(kRows)) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  wait_for_input(args);

  // The panel of a tile that this warp decodes, counted in the tile.
  const auto panel_of = [&](int tile) {
    return (warp / 4 * kTiles + static_cast<uint32_t>(tile)) * 4 + warp % 4;
  };

  float sums[kTiles][4 * kGroups];
  #pragma unroll
  for (int p = 0; p < kTiles; ++p) {
  #pragma unroll
    for (uint32_t i = 0; i < 4 * kGroups; ++i)
      sums[p][i] = 0.0F;
  }

  const auto store_global = [](float4* at, float4 v) { __stcg(at, v); };
  const auto store_sums = [&](float4* to, auto store_one) {
  #pragma unroll
    for (int p = 0; p < kTiles; ++p) {
  #pragma unroll
      for (uint32_t n = 0; n < kGroups; ++n) {
        const float* const v = &sums[p][4 * n];
        store_one(
            to + (p * kGroups + n) * kThreads + threadIdx.x, make_float4(v[0], v[1], v[2], v[3]));
      }
    }
  };
  // Adds what stands before: sums = before + sums.
  const auto add_before = [&](const float4* from, auto load_one) {
  #pragma unroll
    for (int p = 0; p < kTiles; ++p) {
  #pragma unroll
      for (uint32_t n = 0; n < kGroups; ++n) {
        const float4 before = load_one(from + (p * kGroups + n) * kThreads + threadIdx.x);
        float* const v = &sums[p][4 * n];
        v[0] = before.x + v[0];
        v[1] = before.y + v[1];
        v[2] = before.z + v[2];
        v[3] = before.w + v[3];
      }
    }
  };

  // Ends a unit: its sums are kept, handed over, or finished.
  const auto finish_unit = [&](uint32_t unit) {
    const uint32_t split = unit % kSplits;
    const uint32_t tile = unit / kSplits;
    const uint32_t own_begin = max(tile * kSplits, first_unit) - tile * kSplits;
    const uint32_t own_end = min((tile + 1) * kSplits, last_unit) - tile * kSplits;
    const bool is_whole = own_begin == 0 && own_end == kSplits;
    bool is_final = is_whole && split + 1 == kSplits;
    if (own_begin == 0) {
      // Where no other block writes: the place for the first splits of the tile that this one
      // begins.
      float4* const own_partials =
          args.partials + size_t{blockIdx.x} * kSplits * kFragments * kThreads;
      if constexpr (Plan::kSharedTotals) {
        if (split > 0) add_before(shared_totals, [](const float4* at) { return *at; });
        if (split + 1 < own_end) {
          store_sums(shared_totals, [](float4* at, float4 v) { *at = v; });
        }
      } else {
        if (split > 0) add_before(own_partials, [](const float4* at) { return __ldcg(at); });
        if (split + 1 < own_end) store_sums(own_partials, store_global);
      }
    }
    if (!is_whole) {
      // One place a tile that is cut, named by the block that has its first unit.
      const uint32_t place = block_of_unit(tile * kSplits, gridDim.x, n_units);
      float4* const partials = args.partials + size_t{place} * kSplits * kFragments * kThreads;
      const bool hands_over = own_begin > 0 || split + 1 == own_end;
      if (hands_over) {
        store_sums(
            partials + size_t{own_begin == 0 ? 0 : split} * kFragments * kThreads, store_global);
      }
      if (split + 1 == own_end) {
        __threadfence();
        sync_threads<kThreads>();
        if (threadIdx.x == 0) {
          n_arrived = atomicAdd(args.arrived + place, own_end - own_begin) + own_end - own_begin;
          if (n_arrived == kSplits) args.arrived[place] = 0;
        }
        sync_threads<kThreads>();
        is_final = n_arrived == kSplits;
        sync_threads<kThreads>();
        if (is_final) {
          __threadfence();
          const uint32_t first_end =
              min(kSplits, run_begin(place + 1, gridDim.x, n_units) - tile * kSplits);
          // Several fragments at a time, all their splits on the way together.
          constexpr uint32_t kTogether = kRows == 128 ? 2 : 4;
  #pragma unroll
          for (uint32_t first = 0; first < kFragments; first += kTogether) {
            float4 of_splits[kTogether][kSplits] = {};
  #pragma unroll
            for (uint32_t n = 0; n < kTogether; ++n) {
  #pragma unroll
              for (uint32_t s = 0; s < kSplits; ++s) {
                if (s > 0 && s < first_end) continue;  // was added to the first
                of_splits[n][s] = __ldcg(
                    partials + (size_t{s} * kFragments + first + n) * kThreads + threadIdx.x);
              }
            }
  #pragma unroll
            for (uint32_t n = 0; n < kTogether; ++n) {
              float4 total = of_splits[n][0];
  #pragma unroll
              for (uint32_t s = 1; s < kSplits; ++s) {
                const float4 next = of_splits[n][s];
                if (s < first_end) continue;
                total.x += next.x;
                total.y += next.y;
                total.z += next.z;
                total.w += next.w;
              }
              const uint32_t p = (first + n) / kGroups;
              float* const v = &sums[p][4 * ((first + n) % kGroups)];
              v[0] = total.x;
              v[1] = total.y;
              v[2] = total.z;
              v[3] = total.w;
            }
          }
        }
      }
    }
    if (is_final) {
      constexpr uint32_t kStoredTogether = 2;
      const uint32_t row_tile = tile % n_row_tiles;
      const uint32_t tile_index = tile / n_row_tiles;
      const PartArgs& part = part_of_tile(args, tile_index);
  #pragma unroll
      for (int p = 0; p < kTiles; ++p) {
        const uint32_t panel = (tile_index - part.first_tile) * Plan::kPanels + panel_of(p);
        if (panel * kPanel >= part.n_rows) continue;
        const PanelOutput to =
            panel_output<kType>(part, part.weight + panel * panel_bytes, panel * kPanel, lane);
  #pragma unroll
        for (uint32_t first = 0; first < kGroups; first += kStoredTogether) {
          float v[kStoredTogether][4];
  #pragma unroll
          for (uint32_t i = 0; i < 4 * kStoredTogether; ++i)
            v[i / 4][i % 4] = sums[p][4 * first + i];
          store_fragments(args, part, to, 8 * (row_tile * kGroups + first), lane, v);
        }
      }
    }
  #pragma unroll
    for (int p = 0; p < kTiles; ++p) {
  #pragma unroll
      for (uint32_t i = 0; i < 4 * kGroups; ++i)
        sums[p][i] = 0.0F;
    }
  };

  uint32_t stage = 0;
  uint32_t phase = 0;             // of `stage`: which filling of it is awaited
  uint32_t before = kStages - 1;  // the stage of the chunk before
  uint32_t weight_stage = 0;
  uint32_t weight_phase = 0;
  bool is_first = true;
  uint32_t a[2][kTiles][2][4] = {};
  for (uint32_t unit = first_unit; unit < last_unit; ++unit) {
    const uint32_t end = split_begin(args.n_chunks, unit % kSplits + 1);
    for (uint32_t group = split_begin(args.n_chunks, unit % kSplits); group < end;
         group += kGroup) {
      LaneAddresses<kType, uint32_t> at[kTiles];
  #pragma unroll
      for (int p = 0; p < kTiles; ++p) {
        at[p].set_block(
            weights_at + weight_stage * Plan::kWeightStageBytes +
                panel_of(p) * Plan::kPanelGroupBytes,
            lane);
        if constexpr (kType == QuantType::f32 || kType == QuantType::bf16) {
          const uint32_t tile_index = unit / kSplits / n_row_tiles;
          const PartArgs& part = part_of_tile(args, tile_index);
          const uint32_t panel =
              min((tile_index - part.first_tile) * Plan::kPanels + panel_of(p),
                  (part.n_rows - 1) / kPanel);
          at[p].panel = part.weight + panel * panel_bytes;
        }
      }
      wait_barrier(weights_filled_at + 8 * weight_stage, weight_phase);
      typename Format::Header headers[kTiles];
      if constexpr (kBlocked) {
  #pragma unroll
        for (int p = 0; p < kTiles; ++p)
          Format::load_header(headers[p], at[p], 0, g);
      }
  #pragma unroll
      for (int c = 0; c < kGroup; ++c) {
        if (!kBlocked && c > 0 && group + c >= end) break;
        typename Format::Bits bits[kTiles];
        typename Format::Scales scales[kTiles];
        const uint32_t offset = c * (kBlocked ? kLayout.chunk_bytes() : kLayout.block_bytes());
  #pragma unroll
        for (int p = 0; p < kTiles; ++p) {
          bits[p].load(at[p], offset);
          if constexpr (!kBlocked) Format::load_header(headers[p], at[p], offset, g);
          Format::make_scales(scales[p], headers[p], c);
        }
        const uint32_t stage_at = stages_at + stage * kStageBytes;
        const auto run_half = [&]<int kHalf>() {
          warpgroup_wait<1>();
          hold_registers(a[kHalf]);
          if (kHalf == 1 && !is_first && lane == 0) arrive_barrier(freed_at + 8 * before);
  #pragma unroll
          for (int p = 0; p < kTiles; ++p) {
            Format::template decode<2 * kHalf>(a[kHalf][p][0], bits[p], scales[p]);
            Format::template decode<2 * kHalf + 1>(a[kHalf][p][1], bits[p], scales[p]);
          }
          if (kHalf == 0) wait_barrier(filled_at + 8 * stage, phase);
          warpgroup_fence();
  #pragma unroll
          for (int s = 0; s < 2; ++s) {
            const uint64_t input = input_descriptor(stage_at + 32 * (2 * kHalf + s));
  #pragma unroll
            for (int p = 0; p < kTiles; ++p)
              multiply_warpgroup(sums[p], a[kHalf][p][s], input);
          }
          warpgroup_commit();
        };
        run_half.template operator()<0>();
        run_half.template operator()<1>();
        // F16 goes into the products as it was loaded: they must be over before its registers are
        // filled again.
        if constexpr (kType == QuantType::f16) warpgroup_wait<0>();
        before = stage;
        is_first = false;
        stage = stage + 1 == kStages ? 0 : stage + 1;
        if (stage == 0) phase ^= 1;
      }
      // Each lane for its own reads.
      arrive_barrier(weights_freed_at + 8 * weight_stage);
      weight_stage = weight_stage + 1 == kWeightStages ? 0 : weight_stage + 1;
      if (weight_stage == 0) weight_phase ^= 1;
    }
    warpgroup_wait<0>();
    if (unit + 1 == last_unit) let_next_start();
    finish_unit(unit);
  }
  wait_for_neighbour(args);
#endif
}

template <QuantType kType, TileShape kShape, int kMinBlocks>
KernelEntry wide_kernel() {
  constexpr TileTraits kTraits = tile_traits(kShape);
  constexpr int kTiles = kTraits.outputs / 128;
  static_assert(kTraits.threads == wide_block_threads(kTraits.rows) && kTraits.outputs % 128 == 0);
  using Plan = WidePlan<kType, kTiles, kTraits.rows>;
  static_assert(Plan::kSharedBytes <= 226 * 1024);
  return {
      reinterpret_cast<const void*>(linear_wide<kType, kTiles, kTraits.rows, kMinBlocks>),
      Plan::kSharedBytes};
}

template <QuantType kType>
const WideKernelList& linear_wide_kernels() {
  static const WideKernelList kernels = {
      wide_kernel<kType, TileShape::wide_32, 2>(),
      wide_kernel<kType, TileShape::wide_64, 1>(),
      wide_kernel<kType, TileShape::wide_128, 1>(),
      wide_kernel<kType, TileShape::narrow_64, 2>(),
  };
  return kernels;
}

}  // namespace nightsweep::cuda
