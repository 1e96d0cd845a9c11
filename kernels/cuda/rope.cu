#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/sizes.h"
#include "kernels/sin_cos.h"

namespace nightsweep::cuda {

namespace {

constexpr uint32_t kMaxPairs = kMaxRopePairs;
constexpr uint32_t kWarps = 4;  // heads a block

// By value: a kernel's arguments have room for it, and nothing has to be copied before.
struct Frequencies {
  double values[kMaxPairs];
};

__global__ void rope_table_kernel(
    Frequencies frequencies,
    float magnitude,
    const uint32_t* positions,
    uint32_t n_pairs,
    float2* table) {
  wait_for_earlier();
  let_next_start();
  const uint32_t pair = threadIdx.x;
  if (pair >= n_pairs) return;
  const SinCos turned =
      sin_cos(static_cast<double>(positions[blockIdx.x]) * frequencies.values[pair]);
  table[size_t{blockIdx.x} * n_pairs + pair] = make_float2(
      static_cast<float>(turned.cosine * magnitude), static_cast<float>(turned.sine * magnitude));
}

// How a head turns; n_pairs 0: not at all.
struct Turn {
  uint32_t n_pairs;
  bool half_split;
  const float2* table;  // (rows, n_pairs)
};

// Cosines and sines of the elements 32 j + lane of a row's heads.
template <uint32_t kPerLane>
__device__ void load_angles(const Turn& turn, uint32_t row, float2 (&angles)[kPerLane]) {
  const float2* const row_table = turn.table + size_t{row} * turn.n_pairs;
#pragma unroll
  for (uint32_t j = 0; j < kPerLane; ++j) {
    const uint32_t i = 32 * j + threadIdx.x % 32;
    const bool turns = i < 2 * turn.n_pairs;
    const uint32_t pair = turn.half_split ? i % max(turn.n_pairs, 1U) : i / 2;
    angles[j] = turns ? row_table[pair] : make_float2(1.0F, 0.0F);
  }
}

// Element 32 j + lane of a head goes to values[j], turned; zeros past head_dim. `head` is read at
// each element and its partner.
template <uint32_t kPerLane>
__device__ void load_turned(
    const float* head,
    uint32_t head_dim,
    const Turn& turn,
    const float2 (&angles)[kPerLane],
    float (&values)[kPerLane]) {
  float own[kPerLane];
  float other[kPerLane];
#pragma unroll
  for (uint32_t j = 0; j < kPerLane; ++j) {
    const uint32_t i = 32 * j + threadIdx.x % 32;
    const bool is_second = turn.half_split ? i >= turn.n_pairs : i % 2 == 1;
    const uint32_t step = turn.half_split ? turn.n_pairs : 1;
    const bool turns = i < 2 * turn.n_pairs;
    own[j] = i < head_dim ? head[i] : 0.0F;
    other[j] = turns ? head[is_second ? i - step : i + step] : 0.0F;
  }
#pragma unroll
  for (uint32_t j = 0; j < kPerLane; ++j) {
    const uint32_t i = 32 * j + threadIdx.x % 32;
    const bool is_second = turn.half_split ? i >= turn.n_pairs : i % 2 == 1;
    const float2 cs = angles[j];
    const float turned =
        is_second ? fmaf(other[j], cs.y, own[j] * cs.x) : fmaf(own[j], cs.x, -(other[j] * cs.y));
    values[j] = i < 2 * turn.n_pairs ? turned : own[j];
  }
}

template <uint32_t kPerLane>
__device__ bool all_finite(const float (&values)[kPerLane]) {
  bool finite = true;
#pragma unroll
  for (uint32_t j = 0; j < kPerLane; ++j)
    finite = finite && isfinite(values[j]);
  return __all_sync(0xFFFFFFFFU, finite);
}

__device__ float largest_in_warp(float value) {
#pragma unroll
  for (uint32_t step = 16; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, step));
  return value;
}

// 8-bit values of a block of 32 and its scale, as the lanes of a warp hold them.
__device__ int8_t rounded(float value, float& scale) {
  scale = __half2float(__float2half_rn(largest_in_warp(fabsf(value)) / 127.0F));
  if (scale == 0.0F) return 0;
  // The rounded scale may be too small for the largest value.
  const float q = fminf(fmaxf(rintf(value * (1.0F / scale)), -127.0F), 127.0F);
  return static_cast<int8_t>(q);
}

// Where the tokens of a layer go.
struct KvTarget {
  std::byte* pages;
  size_t page_bytes;
  KvHeadLayout layout;
  bool is_rounded;  // q8_0
};

template <uint32_t kPerLane>
__device__ void store_head(
    const KvTarget& target,
    uint32_t page,
    uint32_t kv_head,
    uint32_t token,
    const float (&k)[kPerLane],
    const float (&v)[kPerLane]) {
  const KvHeadLayout& layout = target.layout;
  std::byte* const head =
      target.pages + size_t{page} * target.page_bytes + size_t{kv_head} * layout.size_bytes;
  const uint32_t lane = threadIdx.x % 32;
  const __half nan = __ushort_as_half(0x7E00);
  if (target.is_rounded) {
    int8_t k_q[kPerLane];
    int8_t v_q[kPerLane];
    float k_scale[kPerLane];
    float v_scale[kPerLane];
    bool sound = all_finite(k) && all_finite(v);
#pragma unroll
    for (uint32_t j = 0; j < kPerLane; ++j) {
      k_q[j] = rounded(k[j], k_scale[j]);
      v_q[j] = rounded(v[j], v_scale[j]);
      sound = sound && isfinite(k_scale[j]) && isfinite(v_scale[j]);
    }
#pragma unroll
    for (uint32_t j = 0; j < kPerLane; ++j) {
      const uint32_t i = 32 * j + lane;
      if (i < layout.padded_dim) {
        const size_t at = size_t{token} * layout.row_bytes + i;
        reinterpret_cast<int8_t*>(head)[at] = sound ? k_q[j] : int8_t{0};
        reinterpret_cast<int8_t*>(head + layout.values)[at] = sound ? v_q[j] : int8_t{0};
      }
      if (lane == 0 && j < layout.n_blocks) {
        const uint32_t at = token * layout.n_blocks + j;
        reinterpret_cast<__half*>(head + layout.key_scales)[at] =
            sound ? __float2half_rn(k_scale[j]) : nan;
        reinterpret_cast<__half*>(head + layout.value_scales)[at] =
            __float2half_rn(sound ? v_scale[j] : 0.0F);
      }
    }
    return;
  }
  __half k_half[kPerLane];
  __half v_half[kPerLane];
  bool sound = true;
#pragma unroll
  for (uint32_t j = 0; j < kPerLane; ++j) {
    k_half[j] = __float2half_rn(k[j]);
    v_half[j] = __float2half_rn(v[j]);
    // A value too large for half is infinite here.
    sound = sound && isfinite(__half2float(k_half[j])) && isfinite(__half2float(v_half[j]));
  }
  sound = __all_sync(0xFFFFFFFFU, sound);
#pragma unroll
  for (uint32_t j = 0; j < kPerLane; ++j) {
    const uint32_t i = 32 * j + lane;
    if (i >= layout.padded_dim) continue;
    const size_t at = size_t{token} * layout.padded_dim + i;
    reinterpret_cast<__half*>(head)[at] = sound ? k_half[j] : nan;
    reinterpret_cast<__half*>(head + layout.values)[at] = sound ? v_half[j] : __half{};
  }
}

// Of a step, and whether the table was made before the kernel that came last.
struct RopeRows {
  const uint32_t* positions;
  const uint32_t* pages;
  bool has_table;
};

// Blocks (rows, heads / kWarps): queries first, then the KV heads. Queries turn in place. For heads
// of at most 32 kPerLane elements.
template <uint32_t kPerLane>
__global__ void __launch_bounds__(32 * kWarps) rope_and_store_kernel(
    Turn q_turn,
    Turn k_turn,
    uint32_t n_q_heads,
    uint32_t n_kv_heads,
    uint32_t head_dim,
    RopeRows rows,
    KvTarget target,
    float* q,
    const float* k,
    const float* v) {
  const uint32_t row = blockIdx.x;
  const uint32_t head = blockIdx.y * kWarps + threadIdx.x / 32;
  const uint32_t lane = threadIdx.x % 32;
  const bool is_query = head < n_q_heads;
  const uint32_t kv_head = head - n_q_heads;
  const bool is_there = is_query || kv_head < n_kv_heads;
  const Turn& turn = is_query ? q_turn : k_turn;

  // Positions and pages were copied before the step's first kernel started.
  const uint32_t page = is_query ? 0 : rows.pages[row];
  const uint32_t token = is_query ? 0 : rows.positions[row] % kKvPageTokens;
  float2 angles[kPerLane];
  if (rows.has_table && is_there) load_angles(turn, row, angles);
  wait_for_earlier();
  let_next_start();
  if (!is_there) return;
  if (!rows.has_table) load_angles(turn, row, angles);

  if (is_query) {
    float* const at = q + (size_t{row} * n_q_heads + head) * head_dim;
    float turned[kPerLane];
    load_turned(at, head_dim, turn, angles, turned);
    __syncwarp();  // all have read before any writes
#pragma unroll
    for (uint32_t j = 0; j < kPerLane; ++j) {
      if (32 * j + lane < head_dim) at[32 * j + lane] = turned[j];
    }
    return;
  }
  const size_t from = (size_t{row} * n_kv_heads + kv_head) * head_dim;
  float k_values[kPerLane];
  float v_values[kPerLane];
#pragma unroll
  for (uint32_t j = 0; j < kPerLane; ++j)
    v_values[j] = 32 * j + lane < head_dim ? v[from + 32 * j + lane] : 0.0F;
  load_turned(k + from, head_dim, turn, angles, k_values);
  store_head(target, page, kv_head, token, k_values, v_values);
}

KvTarget target_of(const KvLayer& layer) {
  return {
      .pages = layer.pages,
      .page_bytes = layer.page_bytes,
      .layout = kv_head_layout(layer.shape.type, layer.shape.head_dim),
      .is_rounded = layer.shape.type == KvType::q8_0};
}

void start(
    const char* name,
    uint32_t n_rows,
    const Turn& q_turn,
    const Turn& k_turn,
    uint32_t n_q_heads,
    uint32_t n_kv_heads,
    uint32_t head_dim,
    const RopeRows& rows,
    const KvTarget& target,
    float* q,
    const float* k,
    const float* v,
    cudaStream_t stream) {
  const uint32_t n_heads = n_q_heads + n_kv_heads;
  const LaunchShape shape{
      .grid = {n_rows, (n_heads + kWarps - 1) / kWarps}, .threads = 32 * kWarps};
  const auto kernel = head_dim <= 128 ? rope_and_store_kernel<4> : rope_and_store_kernel<8>;
  static_assert(kMaxHeadDim <= 32 * 8);
  launch(
      name, kernel, shape, stream, q_turn, k_turn, n_q_heads, n_kv_heads, head_dim, rows, target, q,
      k, v);
}

Turn turn_of(const RopeShape& shape, const float2* table) {
  return {.n_pairs = shape.n_rot / 2, .half_split = shape.half_split, .table = table};
}

constexpr Turn kNoTurn{};

}  // namespace

size_t Rope::table_bytes(uint32_t max_rows) {
  return rope_table_bytes(max_rows);
}

void Rope::reserve(uint32_t max_rows) {
  table_ = allocate_on_gpu(table_bytes(max_rows));
  max_rows_ = max_rows;
}

void Rope::begin_step(const GpuRows& rows) {
  rows_ = rows;
  frequencies_.clear();
}

Rope::Table Rope::table_for(const RopeShape& shape) {
  auto* const table = reinterpret_cast<float2*>(table_->data());
  if (magnitude_ == shape.magnitude && std::ranges::equal(frequencies_, shape.frequencies)) {
    return {table, true};
  }
  const auto n_pairs = static_cast<uint32_t>(shape.frequencies.size());
  if (rows_.n_rows > max_rows_ || n_pairs > kMaxPairs || n_pairs * 2 != shape.n_rot) {
    fail_internal(
        "rope of " + std::to_string(rows_.n_rows) + " rows and " + std::to_string(n_pairs) +
        " frequencies, reserved " + std::to_string(max_rows_) + " and " +
        std::to_string(kMaxPairs));
  }
  Frequencies frequencies{};
  std::ranges::copy(shape.frequencies, frequencies.values);
  launch(
      "rope_table", rope_table_kernel, {.grid = {rows_.n_rows}, .threads = kMaxPairs}, stream_,
      frequencies, shape.magnitude, rows_.positions, n_pairs, table);
  frequencies_.assign(shape.frequencies.begin(), shape.frequencies.end());
  magnitude_ = shape.magnitude;
  return {table, false};
}

void Rope::apply(const RopeShape& shape, float* x) {
  if (rows_.n_rows == 0) return;
  const Table table = table_for(shape);
  start(
      "rope", rows_.n_rows, turn_of(shape, table.at), kNoTurn, shape.n_heads, 0, shape.head_dim,
      {rows_.positions, rows_.pages, table.is_settled}, KvTarget{}, x, nullptr, nullptr, stream_);
}

void Rope::apply_and_store(
    const RopeShape& q_shape,
    const RopeShape& k_shape,
    const KvLayer& layer,
    float* q,
    const float* k,
    const float* v) {
  if (rows_.n_rows == 0) return;
  const Table table = table_for(q_shape);
  start(
      "rope_and_store", rows_.n_rows, turn_of(q_shape, table.at), turn_of(k_shape, table.at),
      q_shape.n_heads, layer.shape.n_kv_heads, q_shape.head_dim,
      {rows_.positions, rows_.pages, table.is_settled}, target_of(layer), q, k, v, stream_);
}

void Rope::store(const KvLayer& layer, const float* k, const float* v) {
  if (rows_.n_rows == 0) return;
  start(
      "store_kv", rows_.n_rows, kNoTurn, kNoTurn, 0, layer.shape.n_kv_heads, layer.shape.head_dim,
      {rows_.positions, rows_.pages, true}, target_of(layer), nullptr, k, v, stream_);
}

}  // namespace nightsweep::cuda
