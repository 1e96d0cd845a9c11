#include "engine/plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"

namespace nightsweep {
namespace {

// Llama 3.1 8B in Q4_K_M: 4.9 GB, KV 128 KiB a token in f16.
ModelConfig llama_8b_config() {
  ModelConfig config;
  config.n_layers = 32;
  config.context_tokens = 131072;
  config.dim = 4096;
  config.ff_dim = 14336;
  config.n_heads = 32;
  config.n_kv_heads = 8;
  config.head_dim = 128;
  config.n_vocab = 128256;
  return config;
}

MemoryDemand demand_of(uint64_t budget_bytes) {
  return {
      .budget_bytes = budget_bytes,
      .weight_bytes = 4900 * kMiB,
      .embedding_bytes = 300 * kMiB,
      .embedding_row_bytes = 2304,
      .small_tensor_bytes = kMiB,
      .kv_page_bytes = kKvPageTokens * 128 * 1024,
      .context_tokens = 8192,
      .max_sequences = 0,
      .max_rows = 0};
}

uint64_t total(const MemoryPlan& plan, const MemoryDemand& demand) {
  return plan.scratch_bytes + demand.small_tensor_bytes + plan.ring_bytes + plan.resident_bytes +
         (plan.embedding_resident ? demand.embedding_bytes : 0) +
         plan.n_kv_pages * demand.kv_page_bytes;
}

MemoryDemand device_demand_of(uint64_t budget_bytes) {
  MemoryDemand demand = demand_of(budget_bytes);
  demand.reserve_bytes = [](const StepLimits& limits) {
    return limits.rows_at_once() * 64 * 1024ULL;
  };
  demand.window_bytes = [](uint64_t /*max_slice_bytes*/) { return 110 * kMiB; };
  return demand;
}

TEST(DevicePlan, a_large_card_takes_wide_steps_and_a_small_one_fewer_sequences) {
  MemoryPlan large = plan_device_memory(device_demand_of(80 * kGiB), llama_8b_config());
  EXPECT_EQ(large.max_sequences, 256U);
  EXPECT_EQ(large.limits.max_rows, 512U);
  MemoryPlan small = plan_device_memory(device_demand_of(7 * kGiB), llama_8b_config());
  EXPECT_LT(small.max_sequences, 256U);
  EXPECT_GE(small.n_kv_pages, small.max_sequences * 512 / kKvPageTokens);
}

// Keys and values take no more than the work can fill; nothing else of the plan is smaller for it.
TEST(DevicePlan, what_the_work_cannot_fill_goes_to_the_weights) {
  MemoryDemand demand = device_demand_of(4 * kGiB);
  const MemoryPlan many = plan_device_memory(demand, llama_8b_config());
  demand.most_kv_pages = 3;
  const MemoryPlan few = plan_device_memory(demand, llama_8b_config());
  EXPECT_EQ(few.n_kv_pages, 3U);
  EXPECT_GT(few.resident_bytes, many.resident_bytes);
  EXPECT_GE(few.max_sequences, many.max_sequences);
  EXPECT_GE(few.limits.max_logit_rows, many.limits.max_logit_rows);
  EXPECT_LE(total(few, demand), 4 * kGiB);
  // Work that fills more than there is changes nothing.
  demand.most_kv_pages = 1000000;
  EXPECT_EQ(plan_device_memory(demand, llama_8b_config()).n_kv_pages, many.n_kv_pages);
  EXPECT_EQ(plan_device_memory(demand, llama_8b_config()).resident_bytes, many.resident_bytes);
}

TEST(DevicePlan, a_model_stays_resident_beside_little_work) {
  MemoryDemand demand = device_demand_of(5900 * kMiB);
  EXPECT_GT(plan_device_memory(demand, llama_8b_config()).ring_bytes, 0U);
  demand.most_kv_pages = 4;
  const MemoryPlan plan = plan_device_memory(demand, llama_8b_config());
  EXPECT_EQ(plan.ring_bytes, 0U);
  EXPECT_GE(plan.n_kv_pages, 4U);
}

TEST(MemoryPlan, what_the_work_cannot_fill_goes_to_the_weights) {
  MemoryDemand demand = demand_of(3 * kGiB);
  const MemoryPlan many = plan_memory(demand, llama_8b_config());
  for (const uint32_t pages : {1U, 3U, 5U, 40U}) {
    demand.most_kv_pages = pages;
    const MemoryPlan few = plan_memory(demand, llama_8b_config());
    EXPECT_EQ(few.n_kv_pages, pages);
    EXPECT_GT(few.resident_bytes, many.resident_bytes);
    EXPECT_EQ(few.max_sequences, many.max_sequences);
    EXPECT_LE(total(few, demand), 3 * kGiB);
  }
}

TEST(MemoryPlan, never_promises_more_than_the_budget) {
  for (uint64_t budget = 200 * kMiB; budget < 80 * kGiB; budget = budget * 5 / 4) {
    for (uint32_t sequences : {0U, 1U, 16U, 64U}) {
      MemoryDemand demand = demand_of(budget);
      demand.max_sequences = sequences;
      try {
        MemoryPlan plan = plan_memory(demand, llama_8b_config());
        EXPECT_LE(total(plan, demand), budget) << budget << " " << sequences;
        EXPECT_GT(plan.n_kv_pages, 0U);
        EXPECT_GE(plan.limits.max_rows, plan.max_sequences);
        if (plan.ring_bytes > 0) {
          EXPECT_GE(plan.ring_bytes, 2 * plan.max_slice_bytes);
        }
      } catch (const Error& too_small) {
        EXPECT_EQ(too_small.kind(), ErrorKind::device);
        EXPECT_LT(budget, 400 * kMiB) << too_small.what();
      }
    }
  }
}

TEST(MemoryPlan, ample_memory_holds_everything) {
  MemoryPlan plan = plan_memory(demand_of(128 * kGiB), llama_8b_config());
  EXPECT_EQ(plan.ring_bytes, 0U);
  EXPECT_TRUE(plan.embedding_resident);
  EXPECT_EQ(plan.n_kv_pages, plan.max_sequences * 8192 / kKvPageTokens);
}

TEST(MemoryPlan, half_of_the_model_streams_the_rest) {
  MemoryPlan plan = plan_memory(demand_of(2500 * kMiB), llama_8b_config());
  EXPECT_GT(plan.ring_bytes, 0U);
  EXPECT_GT(plan.resident_bytes, 500 * kMiB);
  EXPECT_FALSE(plan.embedding_resident);
}

TEST(MemoryPlan, a_budget_too_small_names_the_one_that_would_do) {
  try {
    plan_memory(demand_of(20 * kMiB), llama_8b_config());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string(error.what()).find("at least"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--ram"), std::string::npos);
  }
}

TEST(DevicePlan, never_promises_more_than_the_budget) {
  bool has_streamed = false;
  bool has_stayed = false;
  for (uint64_t budget = 500 * kMiB; budget < 80 * kGiB; budget = budget * 9 / 8) {
    for (uint32_t sequences : {0U, 1U, 16U, 64U, 256U}) {
      MemoryDemand demand = device_demand_of(budget);
      demand.max_sequences = sequences;
      try {
        MemoryPlan plan = plan_device_memory(demand, llama_8b_config());
        EXPECT_LE(total(plan, demand), budget) << budget << " " << sequences;
        EXPECT_GT(plan.n_kv_pages, 0U);
        EXPECT_GE(plan.limits.max_rows, plan.max_sequences);
        if (sequences > 0) {
          EXPECT_EQ(plan.max_sequences, sequences);
        }
        (plan.ring_bytes > 0 ? has_streamed : has_stayed) = true;
        if (plan.ring_bytes > 0) {
          EXPECT_GE(plan.ring_bytes, 3 * plan.max_slice_bytes);
        } else {
          EXPECT_EQ(plan.resident_bytes, demand.weight_bytes);
        }
      } catch (const Error& too_small) {
        EXPECT_EQ(too_small.kind(), ErrorKind::device);
        EXPECT_NE(std::string(too_small.what()).find("--vram"), std::string::npos);
        EXPECT_LT(budget, 2 * kGiB);
      }
    }
  }
  EXPECT_TRUE(has_streamed && has_stayed);
}

TEST(DevicePlan, what_fits_with_room_for_sequences_stays) {
  const MemoryPlan plan = plan_device_memory(device_demand_of(24 * kGiB), llama_8b_config());
  EXPECT_EQ(plan.ring_bytes, 0U);
  EXPECT_TRUE(plan.embedding_resident);
  EXPECT_GE(plan.max_sequences, 128U);
}

TEST(DevicePlan, weights_that_would_fit_stream_when_told) {
  MemoryDemand demand = device_demand_of(24 * kGiB);
  demand.most_resident_bytes = kGiB;
  const MemoryPlan plan = plan_device_memory(demand, llama_8b_config());
  EXPECT_EQ(plan.resident_bytes, kGiB);
  EXPECT_GT(plan.ring_bytes, 0U);
}

// 8B in Q8_0 on a card of 10 GiB: the largest window is 190 MB, 8,192 rows at once would be 1.5 GB.
TEST(DevicePlan, rows_are_worked_in_batches_where_that_takes_less) {
  MemoryDemand demand = device_demand_of(9 * kGiB);
  demand.weight_bytes = 8500 * kMiB;
  demand.window_bytes = [](uint64_t /*max_slice_bytes*/) { return 190 * kMiB; };
  demand.max_sequences = 64;
  const MemoryPlan batches = plan_device_memory(demand, llama_8b_config());
  EXPECT_EQ(batches.limits.max_rows, 8192U + 64);
  EXPECT_EQ(batches.limits.rows_at_once(), 512U);
  EXPECT_LE(total(batches, demand), demand.budget_bytes);

  demand.window_bytes = [](uint64_t /*max_slice_bytes*/) { return 2 * kGiB; };
  const MemoryPlan at_once = plan_device_memory(demand, llama_8b_config());
  EXPECT_FALSE(at_once.limits.has_batches());
  EXPECT_GE(at_once.limits.max_rows, 1024U);
  EXPECT_LT(at_once.limits.max_rows, 4096U);

  demand = device_demand_of(4 * kGiB);
  demand.max_rows = 4096;  // as many as were asked for
  EXPECT_EQ(plan_device_memory(demand, llama_8b_config()).limits.max_rows, 4096U);
  EXPECT_TRUE(plan_device_memory(demand, llama_8b_config()).limits.has_batches());
  demand.max_rows = 300;
  EXPECT_FALSE(plan_device_memory(demand, llama_8b_config()).limits.has_batches());
  demand.max_rows = 0;
  demand.max_sequences = 600;
  demand.context_tokens = 64;
  EXPECT_GE(plan_device_memory(demand, llama_8b_config()).limits.rows_at_once(), 600U)
      << "those that decode are a batch";
  EXPECT_FALSE(
      plan_device_memory(device_demand_of(80 * kGiB), llama_8b_config()).limits.has_batches());
}

// Prompts would take a sweep for every 64 tokens.
TEST(DevicePlan, more_sequences_than_fit_leave_rows_for_prompts) {
  MemoryDemand demand = device_demand_of(6 * kGiB);
  demand.max_sequences = 64;
  demand.typical_tokens = 4096;
  const MemoryPlan plan = plan_device_memory(demand, llama_8b_config());
  EXPECT_LT(plan.n_kv_pages, 64 * 4096 / kKvPageTokens);
  EXPECT_GE(plan.limits.max_rows, 512U);
  EXPECT_LE(total(plan, demand), demand.budget_bytes);
}

TEST(DevicePlan, weights_get_what_the_sequences_leave) {
  MemoryDemand demand = device_demand_of(4 * kGiB);
  demand.max_sequences = 8;
  const MemoryPlan few = plan_device_memory(demand, llama_8b_config());
  demand.max_sequences = 24;
  const MemoryPlan many = plan_device_memory(demand, llama_8b_config());
  EXPECT_GT(few.resident_bytes, many.resident_bytes);
  EXPECT_GT(many.n_kv_pages, few.n_kv_pages);
}

}  // namespace
}  // namespace nightsweep
