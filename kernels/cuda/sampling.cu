#include <cuda_fp16.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/sampling.h"

namespace nightsweep::cuda {

namespace {

constexpr uint32_t kThreads = 1024;
constexpr uint32_t kWarps = kThreads / 32;
// Heaviest tokens that are sorted; the kept ones are nearly always among them.
constexpr uint32_t kCandidates = 2048;
constexpr uint32_t kOctaves = 41;  // powers of two of a weight, from 1 down to 2^-40
constexpr float kOne = 0x1p40F;    // a weight of 1
constexpr uint32_t kAll = 0xFFFFFFFFU;

using Weight = unsigned long long;

struct Shared {
  union {
    float floats[kWarps];
    Weight weights[kWarps];
    uint32_t numbers[kWarps];
  } scratch;
  uint32_t octaves[kOctaves];
  uint32_t n_candidates;
  uint64_t keys[kCandidates];  // weight order of a candidate above, ~id below
  uint32_t found;
};

template <typename T, typename Combine>
__device__ T block_reduce(T value, T* scratch, Combine combine) {
  for (uint32_t step = 16; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(kAll, value, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[threadIdx.x % 32];
  for (uint32_t step = 16; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(kAll, value, step));
  return value;
}

__device__ Weight block_sum(Weight value, Shared& shared) {
  return block_reduce(value, shared.scratch.weights, [](Weight a, Weight b) { return a + b; });
}

// Sum of the values of this thread and those before it.
__device__ Weight block_scan(Weight value, Shared& shared) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const Weight before = __shfl_up_sync(kAll, value, step);
    if (lane >= step) value += before;
  }
  __syncthreads();
  if (lane == 31) shared.scratch.weights[threadIdx.x / 32] = value;
  __syncthreads();
  Weight warps = lane < threadIdx.x / 32 ? shared.scratch.weights[lane] : 0;
  for (uint32_t step = 16; step > 0; step /= 2)
    warps += __shfl_xor_sync(kAll, warps, step);
  return value + warps;
}

// Whole numbers in the order of the floats. REQUIRES: no NaN.
__device__ uint32_t order_of(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}

__device__ float value_of_order(uint32_t order) {
  return __uint_as_float(order & 0x80000000U ? order & 0x7FFFFFFFU : ~order);
}

struct Best {
  float value;
  uint32_t id;
  bool has_nan;
};

__device__ Best better(const Best& a, const Best& b) {
  const bool takes_b = b.value > a.value || (b.value == a.value && b.id < a.id);
  return {takes_b ? b.value : a.value, takes_b ? b.id : a.id, a.has_nan || b.has_nan};
}

// The highest logit, the lowest id on a tie.
__device__ Best find_best(const float* logits, uint32_t n_vocab, Shared& shared) {
  Best best{-__builtin_huge_valf(), n_vocab, false};
  constexpr uint32_t kTogether = 16;  // loads on their way
  for (uint32_t first = threadIdx.x; first < n_vocab; first += kTogether * kThreads) {
    float values[kTogether];
#pragma unroll
    for (uint32_t j = 0; j < kTogether; ++j) {
      const uint32_t i = first + j * kThreads;
      values[j] = i < n_vocab ? logits[i] : -__builtin_huge_valf();
    }
#pragma unroll
    for (uint32_t j = 0; j < kTogether; ++j) {
      // What stands in for tokens past the end loses even to a logit of minus infinity.
      best = better(best, {values[j], first + j * kThreads, values[j] != values[j]});
    }
  }
  for (uint32_t step = 16; step > 0; step /= 2) {
    const Best other{
        __shfl_xor_sync(kAll, best.value, step), __shfl_xor_sync(kAll, best.id, step),
        __shfl_xor_sync(kAll, best.has_nan ? 1U : 0U, step) != 0};
    best = better(best, other);
  }
  __shared__ Best warps[kWarps];
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
  __syncthreads();
  for (uint32_t i = 0; i < kWarps; ++i)
    best = better(best, warps[i]);
  __syncthreads();
  (void)shared;
  return best;
}

__device__ void apply_edits(float* logits, const PickJob& job, const LogitEdit* edits) {
  for (uint32_t i = threadIdx.x; i < job.n_edits; i += kThreads) {
    const LogitEdit edit = edits[job.first_edit + i];
    float value = logits[edit.token] + edit.bias;
    if (edit.is_banned) value = -__builtin_huge_valf();
    if (edit.is_repeated) {
      value = value > 0 ? value / job.repetition_penalty : value * job.repetition_penalty;
    }
    logits[edit.token] = value - edit.subtracted;
  }
  __syncthreads();
}

// How a row's logits become weights.
struct Weigher {
  float highest;
  float inverse_temperature;
  float min_p;

  // In steps of 2^-40; zero: cannot be drawn.
  __device__ Weight weigh(float logit) const {
    const float weight = expf((logit - highest) * inverse_temperature);
    return weight < min_p ? 0 : static_cast<Weight>(rintf(weight * kOne));
  }
};

// Which power of two: 0 for weights above 1/2, kOctaves - 1 for the least.
__device__ uint32_t octave_of(Weight weight) {
  return weight >= (Weight{1} << 40)
             ? 0
             : static_cast<uint32_t>(__clzll(static_cast<long long>(weight))) - 24;
}

// The tokens that are kept: all above `order`, and of those at `order` the ids up to last_id.
struct Kept {
  uint32_t order;
  uint32_t last_id;
  __device__ bool has(uint32_t token_order, uint32_t id) const {
    return token_order > order || (token_order == order && id <= last_id);
  }
};

// floor(uniform * total), exactly, for uniform of 53 bits and total below 2^63.
__device__ Weight part_of(double uniform, Weight total) {
  const auto fraction = static_cast<Weight>(uniform * 0x1p53);
  return __umul64hi(fraction << 11, total);
}

// Calls use(id, logit) for the tokens of this thread.
template <typename Use>
__device__ void for_tokens(const float* logits, uint32_t n_vocab, Use&& use) {
  constexpr uint32_t kTogether = 4;  // loads on their way
  for (uint32_t first = threadIdx.x; first < n_vocab; first += kTogether * kThreads) {
    float values[kTogether];
#pragma unroll
    for (uint32_t j = 0; j < kTogether; ++j) {
      const uint32_t i = first + j * kThreads;
      values[j] = i < n_vocab ? logits[i] : 0.0F;
    }
#pragma unroll
    for (uint32_t j = 0; j < kTogether; ++j) {
      const uint32_t i = first + j * kThreads;
      if (i < n_vocab) use(i, values[j]);
    }
  }
}

// Puts the heaviest tokens, as many octaves as fit, into shared.keys, heaviest and lowest id first.
__device__ void
sort_candidates(const float* logits, uint32_t n_vocab, const Weigher& weigher, Shared& shared) {
  if (threadIdx.x < kOctaves) shared.octaves[threadIdx.x] = 0;
  if (threadIdx.x == 0) shared.n_candidates = 0;
  __syncthreads();
  for_tokens(logits, n_vocab, [&](uint32_t, float logit) {
    const Weight weight = weigher.weigh(logit);
    if (weight == 0) return;
    // Neighbours of a warp often share an octave: one of them counts for all.
    const uint32_t octave = octave_of(weight);
    const uint32_t peers = __match_any_sync(__activemask(), octave);
    if (threadIdx.x % 32 == static_cast<uint32_t>(__ffs(static_cast<int>(peers))) - 1) {
      atomicAdd(&shared.octaves[octave], static_cast<uint32_t>(__popc(peers)));
    }
  });
  __syncthreads();
  uint32_t end = 0;  // octaves that fit
  for (uint32_t n = 0; end < kOctaves && n + shared.octaves[end] <= kCandidates; ++end)
    n += shared.octaves[end];
  for (uint32_t i = threadIdx.x; i < kCandidates; i += kThreads)
    shared.keys[i] = 0;
  __syncthreads();
  for_tokens(logits, n_vocab, [&](uint32_t id, float logit) {
    const Weight weight = weigher.weigh(logit);
    if (weight == 0 || octave_of(weight) >= end) return;
    const uint32_t at = atomicAdd(&shared.n_candidates, 1U);
    shared.keys[at] = static_cast<uint64_t>(order_of(logit)) << 32 | (kAll - id);
  });
  // Bitonic, descending; the order in which they came in does not matter, keys are all different.
  for (uint32_t size = 2; size <= kCandidates; size *= 2) {
    for (uint32_t step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (uint32_t i = threadIdx.x; i < kCandidates / 2; i += kThreads) {
        const uint32_t low = i / step * 2 * step + i % step;
        const uint32_t high = low + step;
        const bool is_descending = (low & size) == 0;
        const uint64_t a = shared.keys[low];
        const uint64_t b = shared.keys[high];
        if ((a < b) == is_descending) {
          shared.keys[low] = b;
          shared.keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

__device__ float logit_of_key(uint64_t key) {
  return value_of_order(static_cast<uint32_t>(key >> 32));
}

__device__ uint32_t id_of_key(uint64_t key) {
  return kAll - static_cast<uint32_t>(key);
}

// Index of the first candidate whose prefix sum is above `target`; n: none.
__device__ uint32_t first_above(Weight target, uint32_t n, const Weigher& weigher, Shared& shared) {
  if (threadIdx.x == 0) shared.found = n;
  Weight before = 0;
  for (uint32_t base = 0; base < n; base += kThreads) {
    const uint32_t i = base + threadIdx.x;
    const Weight weight = i < n ? weigher.weigh(logit_of_key(shared.keys[i])) : 0;
    const Weight sum = before + block_scan(weight, shared);
    if (weight > 0 && sum > target && sum - weight <= target) shared.found = i;
    before += block_sum(weight, shared);
  }
  __syncthreads();
  const uint32_t found = shared.found;
  __syncthreads();
  return found;
}

// Sum of the weights, and number, of the tokens at or above an order.
__device__ Weight weight_from(
    const float* logits,
    uint32_t n_vocab,
    const Weigher& weigher,
    uint32_t order,
    bool counts,
    Shared& shared) {
  Weight sum = 0;
  for_tokens(logits, n_vocab, [&](uint32_t, float logit) {
    const Weight weight = weigher.weigh(logit);
    if (weight > 0 && order_of(logit) >= order) sum += counts ? 1 : weight;
  });
  return block_sum(sum, shared);
}

// The shortest run from the heaviest token on whose weights (or number) reach `wanted`, by halving
// the range of the order; for rows so flat that the candidates do not hold it.
__device__ Kept kept_by_search(
    const float* logits,
    uint32_t n_vocab,
    const Weigher& weigher,
    Weight wanted,
    bool counts,
    Shared& shared) {
  uint32_t low = 0;  // reaches it
  uint32_t high = order_of(weigher.highest);
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2 + 1;
    if (weight_from(logits, n_vocab, weigher, middle, counts, shared) >= wanted) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  Weight above = 0;
  if (low < kAll) above = weight_from(logits, n_vocab, weigher, low + 1, counts, shared);
  const Weight each = counts ? 1 : weigher.weigh(value_of_order(low));
  Weight n_ties = each > 0 ? (wanted - above + each - 1) / each : 0;
  if (n_ties == 0) n_ties = 1;
  // The id of the last tie that is kept.
  if (threadIdx.x == 0) shared.found = n_vocab;
  Weight before = 0;
  for (uint32_t base = 0; base < n_vocab && before < n_ties; base += kThreads) {
    const uint32_t id = base + threadIdx.x;
    const Weight is_tie = id < n_vocab && order_of(logits[id]) == low ? 1 : 0;
    const Weight rank = before + block_scan(is_tie, shared);
    if (is_tie == 1 && rank == n_ties) shared.found = id;
    before += block_sum(is_tie, shared);
  }
  __syncthreads();
  const Kept kept{low, shared.found};
  __syncthreads();
  return kept;
}

// Draws from the kept tokens in order of id.
__device__ uint32_t draw_by_id(
    const float* logits,
    uint32_t n_vocab,
    const Weigher& weigher,
    const Kept& kept,
    double uniform,
    Shared& shared) {
  const auto weight_of = [&](uint32_t id) {
    const float logit = logits[id];
    return kept.has(order_of(logit), id) ? weigher.weigh(logit) : 0;
  };
  Weight sum = 0;
  for (uint32_t id = threadIdx.x; id < n_vocab; id += kThreads)
    sum += weight_of(id);
  const Weight target = part_of(uniform, block_sum(sum, shared));
  if (threadIdx.x == 0) shared.found = 0;
  Weight before = 0;
  for (uint32_t base = 0; base < n_vocab && before <= target; base += kThreads) {
    const uint32_t id = base + threadIdx.x;
    const Weight weight = id < n_vocab ? weight_of(id) : 0;
    const Weight reached = before + block_scan(weight, shared);
    if (weight > 0 && reached > target && reached - weight <= target) shared.found = id;
    before += block_sum(weight, shared);
  }
  __syncthreads();
  return shared.found;
}

__device__ uint32_t draw(
    const float* logits,
    uint32_t n_vocab,
    const PickJob& job,
    const Weigher& weigher,
    Shared& shared) {
  const bool has_top_k = job.top_k > 0;
  const bool has_top_p = job.top_p < 1.0;
  if (!has_top_k && !has_top_p) {
    return draw_by_id(logits, n_vocab, weigher, {0, n_vocab}, job.uniform, shared);
  }
  // What min_p leaves, then top_k of it, then top_p of that: always a run from the heaviest on.
  const Weight n_all = weight_from(logits, n_vocab, weigher, 0, true, shared);
  Weight total = weight_from(logits, n_vocab, weigher, 0, false, shared);
  sort_candidates(logits, n_vocab, weigher, shared);
  const uint32_t n_sorted = shared.n_candidates;
  uint32_t end = n_sorted;  // of the kept ones, where they are all candidates
  bool is_sorted = n_all == n_sorted;
  bool is_searched = false;
  Kept kept{0, n_vocab};
  if (has_top_k && job.top_k < n_all) {
    if (job.top_k <= n_sorted) {
      end = job.top_k;
      is_sorted = true;
    } else {
      is_sorted = false;
      is_searched = true;
      kept = kept_by_search(logits, n_vocab, weigher, job.top_k, true, shared);
    }
    Weight sum = 0;
    if (is_sorted) {
      for (uint32_t i = threadIdx.x; i < end; i += kThreads)
        sum += weigher.weigh(logit_of_key(shared.keys[i]));
    } else {
      for_tokens(logits, n_vocab, [&](uint32_t id, float logit) {
        if (kept.has(order_of(logit), id)) sum += weigher.weigh(logit);
      });
    }
    total = block_sum(sum, shared);
  }
  if (has_top_p) {
    // At least one token is kept, however small top_p.
    const auto wanted =
        max(Weight{1}, static_cast<Weight>(ceil(job.top_p * static_cast<double>(total))));
    const uint32_t last = first_above(wanted - 1, is_sorted ? end : n_sorted, weigher, shared);
    if (last < (is_sorted ? end : n_sorted)) {
      end = last + 1;
      is_sorted = true;
    } else if (!is_sorted) {
      is_searched = true;
      kept = kept_by_search(logits, n_vocab, weigher, wanted, false, shared);
    }
  }
  if (!is_sorted || (is_searched && end > n_sorted)) {
    return draw_by_id(logits, n_vocab, weigher, kept, job.uniform, shared);
  }
  Weight sum = 0;
  for (uint32_t i = threadIdx.x; i < end; i += kThreads)
    sum += weigher.weigh(logit_of_key(shared.keys[i]));
  const Weight target = part_of(job.uniform, block_sum(sum, shared));
  return id_of_key(shared.keys[min(first_above(target, end, weigher, shared), end - 1)]);
}

// One block a row.
__global__ void __launch_bounds__(kThreads) pick_kernel(
    float* logits,
    uint32_t n_vocab,
    const PickJob* jobs,
    const LogitEdit* edits,
    Pick* picks) {
  __shared__ Shared shared;
  // Jobs and edits stand in memory of the host, and no kernel writes them.
  __shared__ PickJob job;
  if (threadIdx.x == 0) job = jobs[blockIdx.x];
  wait_for_earlier();
  let_next_start();
  __syncthreads();
  float* const row = logits + size_t{job.row} * n_vocab;
  Best best = find_best(row, n_vocab, shared);
  bool has_nan = best.has_nan;
  bool is_finite = isfinite(best.value);
  if (job.n_edits > 0 && !has_nan && is_finite) {
    apply_edits(row, job, edits);
    best = find_best(row, n_vocab, shared);
    has_nan = best.has_nan;
    is_finite = isfinite(best.value);
  }
  Pick pick{best.id, PickFault::none};
  if (has_nan) {
    pick = {0, PickFault::not_a_number};
  } else if (!is_finite) {
    pick = {0, PickFault::infinite};
  } else if (job.inverse_temperature > 0) {
    const Weigher weigher{best.value, job.inverse_temperature, job.min_p};
    pick.token = draw(row, n_vocab, job, weigher, shared);
  }
  if (threadIdx.x == 0) picks[blockIdx.x] = pick;
}

}  // namespace

void launch_pick(
    float* logits,
    uint32_t n_vocab,
    const PickJob* jobs,
    uint32_t n_jobs,
    const LogitEdit* edits,
    Pick* picks,
    cudaStream_t stream) {
  if (n_jobs == 0) return;
  launch(
      "pick", pick_kernel, {.grid = {n_jobs}, .threads = kThreads, .shared_bytes = 0}, stream,
      logits, n_vocab, jobs, edits, picks);
}

}  // namespace nightsweep::cuda
