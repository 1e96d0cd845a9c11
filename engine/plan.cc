#include "engine/plan.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/units.h"

namespace nightsweep {

namespace {

// More sequences than this give a CPU no more tokens a second: at 64 rows it is bound by compute.
constexpr uint32_t kMostSequencesByDefault = 64;
constexpr uint32_t kRowsByDefault = 256;
// A GPU goes on gaining: it is bound by memory traffic up to a few hundred rows.
constexpr uint32_t kMostSequencesOnADevice = 256;
constexpr uint32_t kRowsOnADevice = 512;
// A sweep that waits for its link computes more rows in the same time: about a thousand behind a
// fast link, and ten times as many behind a slow one or a disk. They cost memory that weights could
// have; so many are taken as cost no more than this part of the budget.
constexpr uint32_t kMostRowsOfASweep = 8192;
constexpr uint64_t kPartForRows = 32;
// Rows of a batch, where a step works its rows in batches: with fewer the operators lose speed.
constexpr uint32_t kBatchRows = 512;
// A group of most models is one slice: kernels are short, so more slices are more gaps.
constexpr uint64_t kDeviceSliceBytes = 256 * kMiB;
// Streamed ones are smaller, so that the ring holds several: matrices of some thousand rows.
constexpr uint64_t kStreamedSliceBytes = 64 * kMiB;
// Of the budget, for the ring. It goes on filling while the host ends one sweep and begins the
// next, some milliseconds: 384 MiB of 24 GiB are seven of them on PCIe 5.0 x16.
constexpr uint64_t kPartForRing = 64;
constexpr uint64_t kMostRingBytes = 1024 * kMiB;
// With fewer sequences than these, weights that stream serve more tokens than ones that stay.
constexpr uint32_t kFewSequencesOnADevice = 16;
constexpr uint32_t kLeastTokens = 256;  // below it nothing useful can run

uint64_t pages_for(uint64_t n_tokens) {
  return KvCache::pages_for_request(n_tokens);
}

// Slices small enough that the ring holds several, large enough that a read runs at disk speed.
uint64_t slice_bytes_for(uint64_t budget_bytes) {
  return std::clamp<uint64_t>(budget_bytes / 48, 16 << 10, 4 * kMiB);
}

// One slice computes, one is read, one is ahead; more smooths a disk that stutters and the time in
// which resident slices compute.
uint64_t ring_bytes_for(uint64_t budget_bytes, uint64_t max_slice_bytes) {
  return std::clamp(budget_bytes / 12, 3 * max_slice_bytes + (64 << 10), 64 * kMiB);
}

// What so many sequences are expected to fill, and no more than the work can.
uint64_t expected_pages(const MemoryDemand& demand, uint32_t max_sequences) {
  const uint64_t typical = pages_for(std::min(demand.context_tokens, demand.typical_tokens));
  return std::min<uint64_t>(max_sequences * typical, demand.most_kv_pages);
}

StepLimits limits_for(const MemoryDemand& demand, uint32_t max_sequences, uint32_t rows) {
  if (demand.max_rows > 0) rows = demand.max_rows;
  return {.max_rows = std::max(rows, max_sequences), .max_logit_rows = max_sequences};
}

}  // namespace

MemoryPlan plan_memory(const MemoryDemand& demand, const ModelConfig& config) {
  MemoryPlan plan;
  plan.max_slice_bytes = slice_bytes_for(demand.budget_bytes);
  plan.max_sequences = demand.max_sequences > 0 ? demand.max_sequences : kMostSequencesByDefault;
  uint64_t least = pages_for(std::min(demand.context_tokens, kLeastTokens));

  // Shrink the step until it fits: first rows, then sequences.
  uint64_t fixed = 0;
  uint64_t ring = ring_bytes_for(demand.budget_bytes, plan.max_slice_bytes);
  uint32_t rows = kRowsByDefault;
  for (;;) {
    plan.limits = limits_for(demand, plan.max_sequences, rows);
    // The rounded copy of an operator's input: a byte and its share of scales a value.
    const uint64_t rounded_bytes = 2ULL * Model::widest_input(config);
    plan.scratch_bytes = Model::scratch_bytes(config, plan.limits) +
                         plan.limits.max_rows * (rounded_bytes + demand.embedding_row_bytes);
    fixed = plan.scratch_bytes + demand.small_tensor_bytes;
    uint64_t needed = fixed + ring + least * demand.kv_page_bytes;
    if (fixed + ring + least * demand.kv_page_bytes <= demand.budget_bytes &&
        fixed * 3 <= demand.budget_bytes) {
      break;
    }
    if (demand.max_rows == 0 && rows > 32) {
      rows /= 2;
    } else if (demand.max_sequences == 0 && plan.max_sequences > 1) {
      plan.max_sequences /= 2;
    } else if (needed <= demand.budget_bytes) {
      break;
    } else {
      fail(
          ErrorKind::device,
          "--ram {} is too small for this model: at least {} are needed ({} scratch, {} ring, {} "
          "KV for {} tokens); raise --ram, or lower --batch or --kv",
          size_text(demand.budget_bytes), size_text(needed), size_text(fixed), size_text(ring),
          size_text(least * demand.kv_page_bytes), std::min(demand.context_tokens, kLeastTokens));
    }
  }

  uint64_t left = demand.budget_bytes - fixed;
  uint64_t whole_kv = plan.max_sequences * pages_for(demand.context_tokens);
  uint64_t wanted_kv = std::min(whole_kv, expected_pages(demand, plan.max_sequences));
  if (left >= demand.weight_bytes + wanted_kv * demand.kv_page_bytes) {
    plan.resident_bytes = demand.weight_bytes;
    left -= demand.weight_bytes;
    uint64_t pages = std::min(whole_kv, left / demand.kv_page_bytes);
    // A resident embedding saves small reads, not traffic of the sweep: it comes last.
    if (left >= demand.embedding_bytes + wanted_kv * demand.kv_page_bytes) {
      plan.embedding_resident = true;
      pages = std::min(pages, (left - demand.embedding_bytes) / demand.kv_page_bytes);
    }
    plan.n_kv_pages = static_cast<uint32_t>(pages);
    return plan;
  }
  left -= ring;
  // Weights stream: KV takes what the sequences can be expected to fill, up to half of the rest;
  // more sequences share a sweep's traffic, resident weights only lower it.
  uint64_t pages = std::min(
      std::max(left / 2 / demand.kv_page_bytes, std::min(least, left / demand.kv_page_bytes)),
      wanted_kv);
  plan.n_kv_pages = static_cast<uint32_t>(pages);
  left -= pages * demand.kv_page_bytes;
  plan.ring_bytes = ring;
  plan.resident_bytes = std::min(left, demand.weight_bytes);
  return plan;
}

namespace {

// Everything resident; none when it does not fit with room for a fair number of sequences.
std::optional<MemoryPlan> plan_resident(const MemoryDemand& demand, const ModelConfig& config) {
  MemoryPlan plan;
  plan.max_slice_bytes = kDeviceSliceBytes;
  plan.max_sequences = demand.max_sequences > 0 ? demand.max_sequences : kMostSequencesOnADevice;
  plan.resident_bytes = demand.weight_bytes;
  plan.embedding_resident = true;
  const uint64_t weights = demand.weight_bytes + demand.embedding_bytes + demand.small_tensor_bytes;

  // Fewer rows cost little; fewer sequences cost tokens a second, so they come last.
  uint32_t rows = kRowsOnADevice;
  for (;;) {
    plan.limits = limits_for(demand, plan.max_sequences, rows);
    plan.scratch_bytes =
        Model::scratch_bytes(config, plan.limits) + demand.reserve_bytes(plan.limits);
    const uint64_t fixed = weights + plan.scratch_bytes;
    const uint64_t kv_bytes = expected_pages(demand, plan.max_sequences) * demand.kv_page_bytes;
    if (fixed + kv_bytes <= demand.budget_bytes) {
      const uint64_t whole_kv = plan.max_sequences * pages_for(demand.context_tokens);
      plan.n_kv_pages = static_cast<uint32_t>(
          std::min(whole_kv, (demand.budget_bytes - fixed) / demand.kv_page_bytes));
      return plan;
    }
    if (demand.max_rows == 0 && rows > 64) {
      rows /= 2;
    } else if (demand.max_sequences == 0 && plan.max_sequences > kFewSequencesOnADevice) {
      plan.max_sequences /= 2;
    } else {
      return std::nullopt;
    }
  }
}

// Some weights stream. A byte saves a byte of traffic whether it holds weights or KV, and each
// more sequence shares the traffic of a sweep: as many as fit, and weights in what is left.
MemoryPlan plan_streamed(const MemoryDemand& demand, const ModelConfig& config) {
  MemoryPlan plan;
  plan.max_slice_bytes = kStreamedSliceBytes;
  plan.ring_bytes =
      std::clamp(demand.budget_bytes / kPartForRing, 3 * kStreamedSliceBytes, kMostRingBytes);
  const uint64_t least = pages_for(std::min(demand.context_tokens, kLeastTokens));

  // A slice, or a window of them, is repacked into a scratch of its own; rows of the embedding come
  // from the file.
  const uint64_t window_bytes = demand.window_bytes(kStreamedSliceBytes);
  const auto scratch_bytes = [&](const StepLimits& limits) {
    const uint64_t slice_bytes = kStreamedSliceBytes * 17 / 16;
    return Model::scratch_bytes(config, limits) + demand.reserve_bytes(limits) +
           (limits.has_batches() ? std::max(slice_bytes, window_bytes) : slice_bytes) +
           limits.rows_at_once() * demand.embedding_row_bytes;
  };
  // All rows at once, or in batches where that takes less.
  const auto limits_of = [&](uint32_t max_sequences, uint32_t n_rows) {
    const StepLimits at_once = limits_for(demand, max_sequences, n_rows);
    StepLimits in_batches = at_once;
    in_batches.batch_rows = std::max(kBatchRows, max_sequences);
    return scratch_bytes(in_batches) < scratch_bytes(at_once) ? in_batches : at_once;
  };
  plan.max_sequences = demand.max_sequences > 0 ? demand.max_sequences : kMostSequencesOnADevice;
  uint32_t rows = kRowsOnADevice;
  for (;;) {
    plan.limits = limits_of(plan.max_sequences, rows);
    plan.scratch_bytes = scratch_bytes(plan.limits);
    const uint64_t fixed = plan.scratch_bytes + demand.small_tensor_bytes + plan.ring_bytes;
    const uint64_t wanted =
        fixed + expected_pages(demand, plan.max_sequences) * demand.kv_page_bytes;
    const uint64_t needed = fixed + least * demand.kv_page_bytes;
    if (wanted <= demand.budget_bytes) break;
    if (demand.max_sequences == 0 && plan.max_sequences > 1) {
      plan.max_sequences =
          plan.max_sequences > 16 ? plan.max_sequences - 16 : plan.max_sequences / 2;
    } else if (demand.max_rows == 0 && rows > 64) {
      rows /= 2;
    } else if (needed <= demand.budget_bytes) {
      break;
    } else {
      fail(
          ErrorKind::device,
          "--vram {} is too small for this model, even when all weights stream: {} are needed ({} "
          "scratch, {} ring, {} KV for {} tokens); raise --vram, or lower --batch or --kv",
          size_text(demand.budget_bytes), size_text(needed), size_text(plan.scratch_bytes),
          size_text(plan.ring_bytes), size_text(least * demand.kv_page_bytes),
          std::min(demand.context_tokens, kLeastTokens));
    }
  }
  // More rows where they are cheap; at the price of a sequence only where not all have room anyhow.
  const uint64_t others_bytes = demand.small_tensor_bytes + plan.ring_bytes;
  uint64_t kv_bytes = expected_pages(demand, plan.max_sequences) * demand.kv_page_bytes;
  if (plan.scratch_bytes + others_bytes + kv_bytes > demand.budget_bytes) {
    kv_bytes = least * demand.kv_page_bytes;
  }
  for (rows = kMostRowsOfASweep; demand.max_rows == 0 && rows > plan.limits.max_rows; rows /= 2) {
    // Beside those that decode, so that prompts which fill the rows leave no small rest.
    const StepLimits wide = limits_of(plan.max_sequences, rows + plan.max_sequences);
    const uint64_t wide_bytes = scratch_bytes(wide);
    if (wide_bytes - plan.scratch_bytes > demand.budget_bytes / kPartForRows) continue;
    if (wide_bytes + others_bytes + kv_bytes > demand.budget_bytes) continue;
    plan.limits = wide;
    plan.scratch_bytes = wide_bytes;
    break;
  }
  uint64_t left =
      demand.budget_bytes - plan.scratch_bytes - demand.small_tensor_bytes - plan.ring_bytes;
  const uint64_t pages =
      std::min(expected_pages(demand, plan.max_sequences), left / demand.kv_page_bytes);
  plan.n_kv_pages = static_cast<uint32_t>(pages);
  left -= pages * demand.kv_page_bytes;
  plan.resident_bytes = std::min({left, demand.weight_bytes, demand.most_resident_bytes});
  return plan;
}

}  // namespace

MemoryPlan plan_device_memory(const MemoryDemand& demand, const ModelConfig& config) {
  if (demand.most_resident_bytes < demand.weight_bytes) return plan_streamed(demand, config);
  if (auto plan = plan_resident(demand, config)) return *plan;
  return plan_streamed(demand, config);
}

uint64_t default_vram_budget(uint64_t free_bytes) {
  const uint64_t margin = std::max<uint64_t>(384 * kMiB, free_bytes / 50);
  return free_bytes > 2 * margin ? free_bytes - margin : free_bytes / 2;
}

}  // namespace nightsweep
