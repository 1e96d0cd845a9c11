#include "engine/forecast.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "engine/advice.h"
#include "engine/device_stream.h"
#include "engine/host_tiers.h"
#include "engine/synthetic_model.h"
#include "support/async_device.h"
#include "support/expect_error.h"
#include "support/scripted_reader.h"
#include "support/stream_model.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

// Models are parsed once: a vocabulary of 128 thousand takes its time.
struct Planned {
  explicit Planned(const char* name)
      : gguf(synthetic_model(name)), config(read_model_config(gguf, {})) {}
  ForecastModel on_gpu(KvType kv = KvType::f16) const {
    return {.gguf = gguf, .config = config, .device = cuda_sizes(), .kv_type = kv};
  }
  ForecastModel on_cpu() const {
    return {
        .gguf = gguf,
        .config = config,
        .device = make_cpu_device({.n_threads = 1}),
        .kv_type = KvType::f16};
  }
  GgufModel gguf;
  ModelConfig config;
};
const Planned& llama_70b() {
  static const Planned kModel("llama-70b:Q4_K_M");
  return kModel;
}
const Planned& llama_8b() {
  static const Planned kModel("llama-8b:Q8_0");
  return kModel;
}

// The test machine of DESIGN: H200 behind a link of 55.3 GB/s.
MachineRates h200() {
  MachineRates rates = rates_of_sheet(*find_gpu_sheet("h200"));
  rates.link_rate = 55.3e9;
  rates.disk_rate = 2.0e9;
  return rates;
}
MachineRates rtx_3090(double link_rate, double disk_rate) {
  MachineRates rates = rates_of_sheet(*find_gpu_sheet("rtx-3090"));
  rates.link_rate = link_rate;
  rates.disk_rate = disk_rate;
  return rates;
}

double decode_tps(const Forecast& forecast, double context) {
  const uint32_t n = forecast.n_sequences();
  return n / forecast.decode(n, context).sweep_s();
}

TEST(Forecast, a_70b_model_in_24_gib_streams_what_its_link_allows) {
  // Issue figures: 2.6, 42, 83, 167 and 333 tokens/s are 25 to 25.5 GB a sweep; here a part of the
  // memory is what the sequences need.
  for (const uint32_t n : {1U, 16U, 32U, 64U, 128U}) {
    const Forecast forecast(
        llama_70b().on_gpu(),
        {.vram_bytes = 24 * kGiB,
         .ram_bytes = 64 * kGiB,
         .max_sequences = n,
         .context_tokens = 256,
         .typical_tokens = 256},
        h200());
    const SweepCost cost = forecast.decode(n, 192);
    EXPECT_EQ(forecast.n_sequences(), n);
    EXPECT_EQ(cost.bound(), Bound::link) << n;
    EXPECT_DOUBLE_EQ(cost.sweep_s(), static_cast<double>(forecast.placement().link_bytes) / 55.3e9);
    EXPECT_EQ(cost.disk_s, 0);
    EXPECT_GT(decode_tps(forecast, 192), 1.8 * n);
    EXPECT_LT(decode_tps(forecast, 192), 3.2 * n);
  }
}

// What neither weights nor keys and values take is a small part: prompts of 128 tokens and answers
// of 65 keep 192 of them in three pages, not in four.
TEST(Forecast, a_70b_model_in_24_gib_leaves_to_the_weights_what_nothing_else_needs) {
  for (const uint32_t n : {32U, 64U, 128U}) {
    const Forecast forecast(
        llama_70b().on_gpu(),
        {.vram_bytes = 24 * kGiB,
         .ram_bytes = 64 * kGiB,
         .max_sequences = n,
         .context_tokens = 193,
         .typical_tokens = 193},
        h200());
    const MemoryPlan& plan = forecast.plan();
    EXPECT_EQ(plan.n_kv_pages, 3 * n);
    EXPECT_EQ(forecast.n_sequences(), n);
    const uint64_t kv_bytes = 192 * n * forecast.kv_bytes_per_token();
    EXPECT_LT(plan.scratch_bytes + plan.ring_bytes, 24 * kGiB / 16);
    // Prompts fill 8,192 rows beside those that decode, in batches.
    EXPECT_EQ(plan.limits.max_rows, 8192 + n);
    EXPECT_EQ(plan.limits.rows_at_once(), 512U);
    // The issue's limits are 83, 167 and 333 tokens/s; the last is more than keys and values in f16
    // leave room for, with nothing else in the memory but they and weights.
    const double least_s =
        static_cast<double>(forecast.demand().weight_bytes + kv_bytes - 24 * kGiB) / 55.3e9;
    EXPECT_GT(decode_tps(forecast, 160), 0.92 * n / least_s) << n;
    if (n < 128) {
      EXPECT_GT(decode_tps(forecast, 160), 0.96 * 167 * n / 64);
    } else {
      EXPECT_LT(n / least_s, 0.92 * 333);
    }
  }
}

TEST(Forecast, every_byte_of_the_weights_is_in_one_tier) {
  for (const uint64_t vram : {4 * kGiB, 12 * kGiB, 24 * kGiB, 80 * kGiB}) {
    for (const uint64_t ram : {4 * kGiB, 16 * kGiB, 64 * kGiB}) {
      const Forecast forecast(
          llama_70b().on_gpu(),
          {.vram_bytes = vram, .ram_bytes = ram, .max_sequences = 16, .context_tokens = 512},
          h200());
      uint64_t by_tier[3] = {};
      const std::vector<WeightSlice>& slices = forecast.slices().plan.slices;
      for (size_t i = 0; i < slices.size(); ++i)
        by_tier[static_cast<size_t>(forecast.placement().tiers[i])] += slices[i].size_bytes;
      const Placement& placement = forecast.placement();
      EXPECT_EQ(by_tier[1] + by_tier[2], placement.link_bytes);
      EXPECT_EQ(by_tier[2], placement.disk_bytes);
      EXPECT_LE(placement.host_bytes + placement.host_ring_bytes, ram);
      EXPECT_LE(placement.resident_bytes, vram);
      EXPECT_GE(placement.resident_bytes, by_tier[0]);
    }
  }
}

TEST(Placement, a_source_that_is_asked_for_is_planned) {
  const auto placed = [](const char* source, uint64_t ram_bytes) {
    return Forecast(
               llama_70b().on_gpu(),
               {.vram_bytes = 24 * kGiB,
                .ram_bytes = ram_bytes,
                .max_sequences = 16,
                .context_tokens = 512,
                .source = source},
               h200())
        .placement();
  };
  EXPECT_EQ(placed("auto", 64 * kGiB).disk_bytes, 0U);
  for (const char* source : {"direct", "mmap"}) {
    const Placement placement = placed(source, 64 * kGiB);
    EXPECT_EQ(placement.host_bytes, 0U) << source;
    EXPECT_EQ(placement.disk_bytes, placement.link_bytes) << source;
  }
  for (const char* source : {"pinned", "registered"}) {
    EXPECT_EQ(placed(source, 64 * kGiB).disk_bytes, 0U) << source;
    EXPECT_ERROR(ErrorKind::device, placed(source, 12 * kGiB), source);
  }
  EXPECT_ERROR(
      ErrorKind::usage,
      Forecast(
          llama_8b().on_cpu(), {.ram_bytes = 4 * kGiB, .context_tokens = 512, .source = "pinned"},
          h200()),
      "--source pinned");
}

// The planner and the stream must not choose otherwise.
TEST(Placement, is_what_the_stream_does) {
  const TemporaryFolder folder;
  const StreamModel model(folder.path("model.gguf"), {.n_layers = 6});
  AsyncDevice sizes;
  const uint64_t all = packed_bytes(model.plan(), sizes);
  const uint64_t ring = min_device_ring_bytes(model.plan()) + 1000;
  uint64_t largest = 0;
  for (const WeightSlice& slice : model.plan().slices)
    largest = std::max(largest, ring_bytes_of(slice));
  const uint64_t host_ring = align_up((HostTiers::kMaxLeases + 2) * largest, kDirectAlignment);
  for (const uint64_t resident : {uint64_t{0}, all / 3, all / 2}) {
    for (const uint64_t host : {host_ring, host_ring + all / 4}) {
      MemoryPlan plan;
      plan.resident_bytes = resident;
      plan.ring_bytes = ring;
      const Placement placement = place_slices(model.plan(), sizes, plan, host);
      AsyncDevice device;
      const auto stream = WeightStream::open(
          model.model(), model.plan(), device,
          {.resident_bytes = resident_budget(model.plan(), sizes, plan),
           .ring_bytes = ring,
           .host_bytes = host},
          scripted({}));
      for (int sweep = 0; sweep < 3; ++sweep) {
        for (uint32_t slice = 0; slice < model.plan().slices.size(); ++slice)
          (void)stream->acquire(slice);
      }
      device.synchronize();
      EXPECT_EQ(stream->stats().resident_bytes, placement.resident_bytes);
      EXPECT_EQ(stream->stats().host_bytes, placement.host_bytes);
      EXPECT_GT(placement.disk_bytes, 0U);
      EXPECT_GE(stream->stats().copied_bytes, 3 * placement.link_bytes);
    }
  }
}

TEST(Forecast, the_largest_term_binds_and_rows_cost_operations) {
  const ForecastBudget budget{
      .vram_bytes = 24 * kGiB, .ram_bytes = 12 * kGiB, .max_sequences = 64, .context_tokens = 512};
  const Forecast slow_disk(llama_70b().on_gpu(), budget, h200());
  EXPECT_EQ(slow_disk.decode(64, 256).bound(), Bound::disk);
  MachineRates fast = h200();
  fast.disk_rate = fast.link_rate = 1e15;
  const Forecast no_traffic(llama_70b().on_gpu(), budget, fast);
  EXPECT_EQ(no_traffic.decode(1, 256).bound(), Bound::vram);
  EXPECT_EQ(no_traffic.prefill(256).bound(), Bound::flops);
  EXPECT_GT(no_traffic.decode(64, 256).sweep_s(), no_traffic.decode(1, 256).sweep_s());
  EXPECT_GT(no_traffic.decode(64, 8192).vram_s, no_traffic.decode(64, 256).vram_s);
}

// A sweep of 4 s on PCIe 3.0 x8 computes thousands of rows, one of 0.4 s on a fast link about
// 1,250.
TEST(Forecast, prompts_beside_answers_are_what_a_sweep_computes_while_it_waits) {
  const ForecastBudget budget{
      .vram_bytes = 24 * kGiB, .ram_bytes = 60 * kGiB, .max_sequences = 64, .context_tokens = 1200};
  const SweepLoad answers{.decode_rows = 64, .decode_context = 1000, .logit_rows = 64};
  const auto with = [](const SweepLoad& load, uint32_t prompt_rows) {
    SweepLoad more = load;
    more.prefill_rows = prompt_rows;
    return more;
  };
  const Forecast fast(llama_70b().on_gpu(), budget, h200());
  const uint32_t n = fast.free_prompt_rows(answers);
  EXPECT_GT(n, 800U);
  EXPECT_LT(n, 2000U);
  EXPECT_EQ(fast.sweep(with(answers, n)).sweep_s(), fast.sweep(answers).sweep_s());
  EXPECT_GT(fast.sweep(with(answers, n + 100)).sweep_s(), fast.sweep(answers).sweep_s());

  MachineRates slow = h200();
  slow.link_rate = 6.5e9;
  const Forecast waiting(llama_70b().on_gpu(), budget, slow);
  EXPECT_EQ(waiting.free_prompt_rows(answers), waiting.plan().limits.max_rows - 64);
  // Prompts of 64 x 1,024 tokens take an eighth of the sweeps that 2,048 rows each would take.
  const NightCost night =
      waiting.night({.n_jobs = 64, .prompt_tokens = 1024, .answer_tokens = 100});
  EXPECT_LE(night.n_sweeps, 99U + 9);
  // What stays needs no link: then all rows are as good as any.
  const Forecast resident(
      llama_8b().on_gpu(), {.vram_bytes = 80 * kGiB, .ram_bytes = kGiB, .context_tokens = 512},
      h200());
  EXPECT_EQ(resident.free_prompt_rows({.decode_rows = 8}), resident.plan().limits.max_rows - 8);
}

TEST(Forecast, a_batch_of_rows_reads_the_weights_again) {
  const ForecastBudget budget{
      .vram_bytes = 24 * kGiB, .ram_bytes = 60 * kGiB, .max_sequences = 64, .context_tokens = 512};
  const Forecast forecast(llama_70b().on_gpu(), budget, h200());
  const SweepCost one = forecast.sweep({.prefill_rows = 512});
  const SweepCost two = forecast.sweep({.prefill_rows = 1024});
  const double packed_bytes = static_cast<double>(forecast.demand().weight_bytes);
  EXPECT_GT(two.vram_s - one.vram_s, packed_bytes / h200().memory_rate);
  EXPECT_EQ(two.link_s, one.link_s);
}

TEST(Forecast, measured_operators_count_for_more_than_the_two_rates) {
  const ForecastBudget budget{.ram_bytes = 64 * kGiB, .max_sequences = 64, .context_tokens = 512};
  MachineRates rates;
  rates.memory_rate = 3e12;
  rates.flops = 500e9;
  rates.linear[QuantType::q8_0] = {{1, 5e9}, {16, 4e9}, {64, 2e9}};
  const Forecast forecast(llama_8b().on_cpu(), budget, rates);
  // The head too is of this type, so all weights take their seconds a weight; halfway between 16
  // and 64 rows lies halfway between their times.
  const auto n = static_cast<double>(forecast.n_weights());
  EXPECT_NEAR(forecast.decode(1, 0).compute_s, n / 5e9, 0.01);
  EXPECT_NEAR(forecast.decode(40, 0).compute_s, n * (1 / 4e9 + 1 / 2e9) / 2, 0.01);
  EXPECT_NEAR(forecast.sweep({.decode_rows = 128, .logit_rows = 128}).compute_s, 2 * n / 2e9, 0.02);
  EXPECT_EQ(forecast.decode(1, 0).link_s, 0);
}

TEST(Forecast, the_start_of_an_operator_counts_once) {
  const ForecastBudget budget{.ram_bytes = 64 * kGiB, .max_sequences = 64, .context_tokens = 512};
  MachineRates rates;
  rates.memory_rate = 3e12;
  rates.flops = 500e9;
  rates.operator_s = 1e-3;
  const Forecast by_rates(llama_8b().on_cpu(), budget, rates);
  const auto started_s = [&](const MachineRates& machine) {
    MachineRates none = machine;
    none.operator_s = 0;
    return Forecast(llama_8b().on_cpu(), budget, machine).decode(1, 0).compute_s -
           Forecast(llama_8b().on_cpu(), budget, none).decode(1, 0).compute_s;
  };
  const auto n_slices = static_cast<double>(by_rates.slices().plan.slices.size());
  EXPECT_NEAR(started_s(rates), 1e-3 * (6 * 32 + n_slices), 1e-6);
  // A measured matrix was so with the operator that rounds its input.
  rates.linear[QuantType::q8_0] = {{1, 5e9}, {16, 4e9}};
  EXPECT_NEAR(started_s(rates), 1e-3 * 2 * 32, 1e-6);
  rates.attention_s = 5e-3;
  MachineRates none = rates;
  none.attention_s = 0;
  EXPECT_NEAR(
      Forecast(llama_8b().on_cpu(), budget, rates).decode(1, 0).compute_s -
          Forecast(llama_8b().on_cpu(), budget, none).decode(1, 0).compute_s,
      4e-3 * 32, 1e-6);
}

TEST(Forecast, a_data_sheet_gives_about_what_was_measured) {
  // One H200, everything resident, prompts of 128 tokens: README.
  const Forecast forecast(
      llama_70b().on_gpu(), {.vram_bytes = 130 * kGiB, .ram_bytes = kGiB, .context_tokens = 512},
      h200());
  EXPECT_NEAR(forecast.decode(1, 150).sweep_s(), 1 / 58.0, 0.15 / 58);
  EXPECT_NEAR(forecast.decode(64, 150).sweep_s(), 64 / 1521.0, 0.15 * 64 / 1521);
  EXPECT_NEAR(forecast.decode(256, 150).sweep_s(), 256 / 2419.0, 0.15 * 256 / 2419);
  EXPECT_NEAR(forecast.prefill(128).sweep_s(), 512 / 3020.0, 0.2 * 512 / 3020);
}

TEST(Forecast, a_missing_rate_is_noticed) {
  const ForecastBudget budget{
      .vram_bytes = 24 * kGiB, .ram_bytes = 8 * kGiB, .max_sequences = 16, .context_tokens = 512};
  MachineRates rates = h200();
  rates.link_rate = rates.disk_rate = 0;
  const Forecast forecast(llama_70b().on_gpu(), budget, rates);
  EXPECT_TRUE(forecast.lacks_link_rate());
  EXPECT_TRUE(forecast.lacks_disk_rate());
  const Forecast resident(
      llama_8b().on_gpu(), {.vram_bytes = 80 * kGiB, .ram_bytes = kGiB, .context_tokens = 512},
      rates);
  EXPECT_FALSE(resident.lacks_link_rate());
  EXPECT_FALSE(resident.lacks_disk_rate());
}

TEST(Forecast, the_number_of_sequences_gives_most_tokens) {
  // RAM holds what streams beside few sequences; more of them push weights onto a slow disk.
  for (const uint64_t ram : {18 * kGiB, 22 * kGiB, 48 * kGiB}) {
    const MachineRates rates = rtx_3090(25e9, 1.0e9);
    ForecastBudget budget{.vram_bytes = 22 * kGiB, .ram_bytes = ram, .context_tokens = 1024};
    budget.typical_tokens = 1024;
    const auto chosen = choose_forecast(llama_70b().on_gpu(), budget, rates);
    const double found = decode_tps(*chosen, 1024);
    for (const uint32_t n : {4U, 16U, 32U, 48U, 64U}) {
      budget.max_sequences = n;
      const Forecast other(llama_70b().on_gpu(), budget, rates);
      EXPECT_GE(found * 1.011, decode_tps(other, 1024)) << n << " of " << chosen->n_sequences();
    }
  }
}

TEST(Forecast, few_jobs_leave_memory_to_the_weights) {
  const MachineRates rates = rtx_3090(25e9, 3.35e9);
  ForecastBudget budget{
      .vram_bytes = 22 * kGiB,
      .ram_bytes = 40 * kGiB,
      .context_tokens = 256,
      .typical_tokens = 256};
  const auto many = choose_forecast(llama_70b().on_gpu(), budget, rates);
  budget.most_sequences = 64;
  budget.most_kv_pages = 64 * KvCache::pages_for_request(256);
  const auto few = choose_forecast(llama_70b().on_gpu(), budget, rates);
  EXPECT_GT(many->n_sequences(), 64U);
  EXPECT_EQ(few->n_sequences(), 64U);
  EXPECT_LT(few->placement().link_bytes, many->placement().link_bytes);
  const NightLoad night{.n_jobs = 64, .prompt_tokens = 128, .answer_tokens = 128};
  EXPECT_LT(few->night(night).finish_s, 0.8 * many->night(night).finish_s);
}

TEST(Night, one_job_takes_a_sweep_a_token) {
  const Forecast forecast(
      llama_8b().on_gpu(), {.vram_bytes = 80 * kGiB, .ram_bytes = kGiB, .context_tokens = 4096},
      h200());
  const uint32_t rows = forecast.plan().limits.max_rows;
  const NightCost one = forecast.night({.n_jobs = 1, .prompt_tokens = 100, .answer_tokens = 10});
  EXPECT_EQ(one.n_sweeps, 10U);
  const NightCost longer =
      forecast.night({.n_jobs = 1, .prompt_tokens = rows + 1, .answer_tokens = 10});
  EXPECT_EQ(longer.n_sweeps, 11U);
  EXPECT_NEAR(one.finish_s, one.fill_s + one.prefill_s + one.decode_s, 1e-9);
  EXPECT_NEAR(one.tail_s, one.decode_s, 1e-9) << "one sequence is never as many as could run";
}

TEST(Night, a_long_one_is_like_a_short_one_again_and_again) {
  const Forecast forecast(
      llama_8b().on_gpu(),
      {.vram_bytes = 80 * kGiB, .ram_bytes = kGiB, .max_sequences = 8, .context_tokens = 1024},
      h200());
  const auto finish_s = [&](uint64_t n_jobs) {
    return forecast.night({.n_jobs = n_jobs, .prompt_tokens = 40, .answer_tokens = 30}).finish_s;
  };
  // The first two are worked through, the others are not: 8 x 8 x 4 is the border.
  const double piece_s = finish_s(256) - finish_s(192);
  EXPECT_NEAR(finish_s(320), finish_s(256) + piece_s, 0.02 * piece_s);
  EXPECT_NEAR(finish_s(6400), finish_s(256) + 96 * piece_s, 0.02 * 96 * piece_s);
}

TEST(Advice, names_first_what_is_missing_most) {
  const ForecastBudget budget{
      .vram_bytes = 22 * kGiB, .ram_bytes = 8 * kGiB, .max_sequences = 32, .context_tokens = 512};
  const std::vector<Advice> of_disk =
      find_advice(llama_70b().on_gpu(), budget, rtx_3090(25e9, 1e9), std::nullopt);
  ASSERT_FALSE(of_disk.empty());
  EXPECT_EQ(of_disk.front().change, "16 GiB more RAM");
  EXPECT_GT(of_disk.front().factor, 2);
  for (size_t i = 1; i < of_disk.size(); ++i)
    EXPECT_GE(of_disk[i - 1].factor, of_disk[i].factor);

  ForecastBudget ample = budget;
  ample.ram_bytes = 64 * kGiB;
  const std::vector<Advice> of_link =
      find_advice(llama_70b().on_gpu(), ample, rtx_3090(6.5e9, 0), std::nullopt);
  ASSERT_FALSE(of_link.empty());
  for (const Advice& advice : of_link) {
    EXPECT_NE(advice.change, "16 GiB more RAM") << "nothing is read from the disk";
    EXPECT_NE(advice.change, "a disk twice as fast");
  }
}

TEST(Rates, come_back_from_their_file) {
  MachineRates rates = h200();
  rates.device = "a GPU";
  rates.operator_s = 4e-6;
  rates.attention_s = 9e-6;
  rates.linear[QuantType::q4_k] = {{1, 1e12}, {64, 9e11}};
  rates.linear_streamed[QuantType::q8_0] = {{1, 2e9}};
  const MachineRates found = parse_rates(rates_json(rates).dump(), "rates.json");
  EXPECT_EQ(rates_json(found).dump(), rates_json(rates).dump());
  EXPECT_EQ(*found.origin_of("link"), "rates.json");
}

TEST(Rates, a_damaged_file_is_refused_by_member) {
  const auto refused = [](const char* text, const char* part) {
    EXPECT_ERROR(ErrorKind::usage, parse_rates(text, "rates.json"), part);
  };
  refused("{", "rates.json: byte");
  refused("[]", "expected the object");
  refused(R"({"link_rate":"fast"})", "rates.json: link_rate: expected a number");
  refused(R"({"link_rate":-1})", "link_rate");
  refused(R"({"linear":{}})", "linear: expected an array");
  refused(R"({"linear":[{"type":"Q9","rows":1,"weights_per_s":1}]})", "linear[0].type");
  refused(R"({"linear":[{"type":"Q4_K","rows":0,"weights_per_s":1}]})", "linear[0]");
  refused(
      R"({"linear":[{"type":"Q4_K","rows":2,"weights_per_s":1},{"type":"Q4_K","rows":2,"weights_per_s":1}]})",
      "linear[1].rows");
}

}  // namespace
}  // namespace nightsweep
