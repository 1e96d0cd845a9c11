#include "engine/synthetic_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "engine/engine_fixture.h"
#include "engine/inspect.h"
#include "engine/machine_probe.h"
#include "support/detached_device.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

TEST(SyntheticModel, has_the_size_of_the_model_that_it_is_named_after) {
  // Meta-Llama-3.1-70B-Instruct Q4_K_M is 42.5 GB, 8B Q8_0 8.54 GB.
  EXPECT_NEAR(
      static_cast<double>(synthetic_model("llama-70b:Q4_K_M").file_bytes().front()), 42.5e9, 0.3e9);
  const GgufModel model = synthetic_model("llama-8b:Q8_0");
  EXPECT_NEAR(static_cast<double>(model.file_bytes().front()), 8.54e9, 0.05e9);
  const InspectReport report = inspect_model(model);
  EXPECT_EQ(report.why_not, "");
  EXPECT_NEAR(static_cast<double>(report.n_params), 8.03e9, 0.01e9);
}

TEST(SyntheticModel, a_file_of_every_mix_computes) {
  const TemporaryFolder folder;
  for (const char* mix :
       {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K",
        "Q4_K_M", "Q5_K_M"}) {
    const std::string name = std::string("llama-tiny:") + mix;
    const std::string path = folder.path(mix);
    uint64_t done = 0;
    uint64_t total = 0;
    write_synthetic_model(name, path, [&](uint64_t now, uint64_t all) {
      done = now;
      total = all;
    });
    EXPECT_EQ(done, total);
    EXPECT_EQ(synthetic_model(name).file_bytes(), GgufModel::open(path).file_bytes());
    const auto engine = open_engine(path, {.n_threads = 1}, {.ram_bytes = 256 << 20});
    const std::vector<float> logits = all_logits(*engine, {1, 300, 400, 500});
    float largest = 0;
    for (const float logit : logits) {
      ASSERT_TRUE(std::isfinite(logit)) << mix;
      largest = std::max(largest, std::abs(logit));
    }
    EXPECT_GT(largest, 0) << mix;
  }
}

TEST(SyntheticModel, what_is_not_known_is_refused_with_what_is) {
  EXPECT_ERROR(ErrorKind::usage, synthetic_model("llama-9b:Q4_K_M"), "llama-70b");
  EXPECT_ERROR(ErrorKind::usage, synthetic_model("llama-8b:Q3_K"), "Q4_K_M");
  EXPECT_ERROR(ErrorKind::usage, synthetic_model("smollm2-135m:Q4_K"), "multiples");
}

TEST(MachineProbe, finds_a_rate_for_everything_that_a_cpu_does) {
  const auto device = make_cpu_device({.n_threads = 1});
  const ProbeShape shape{
      .n_rows = 64,
      .n_cols = 256,
      .n_heads = 4,
      .n_kv_heads = 2,
      .head_dim = 32,
      .types = {QuantType::q4_k, QuantType::f32},
      .spread_bytes = 1 << 18};
  const MachineRates rates = probe_operators(*device, shape);
  EXPECT_GT(rates.memory_rate, 0);
  EXPECT_GT(rates.flops, 0);
  EXPECT_GT(rates.attention_rate, 0);
  EXPECT_GT(rates.attention_flops, 0);
  EXPECT_GT(rates.operator_s, 0);
  EXPECT_GT(rates.attention_s, 0);
  for (const auto* curves : {&rates.linear, &rates.linear_streamed}) {
    ASSERT_EQ(curves->size(), 2U);
    for (const auto& [type, curve] : *curves) {
      for (const LinearRate& rate : curve)
        EXPECT_GT(rate.weights_per_s, 0);
    }
  }
}

TEST(SyntheticModel, appears_whole_or_not_at_all) {
  const TemporaryFolder folder;
  const std::string path = folder.path("model");
  struct Stop {};
  EXPECT_THROW(
      write_synthetic_model(
          "llama-tiny:Q4_0", path,
          [&](uint64_t /*done*/, uint64_t /*total*/) {
            EXPECT_FALSE(std::filesystem::exists(path));
            throw Stop();
          }),
      Stop);
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(path).parent_path()));
  write_synthetic_model("llama-tiny:Q4_0", path);
  EXPECT_EQ(
      std::filesystem::file_size(path), synthetic_model("llama-tiny:Q4_0").file_bytes().front());
}

TEST(MachineProbe, copies_from_memory_that_the_device_knows) {
  const TemporaryFolder folder;
  write_synthetic_model("llama-tiny:Q4_0", folder.path("model"));
  const auto state = std::make_shared<LinkState>();
  DetachedDevice device(make_cpu_device({.n_threads = 1}), state);
  LinkProbe found = probe_link(device);
  EXPECT_GT(found.to_device, 0);
  EXPECT_GT(found.from_device, 0);
  EXPECT_GT(found.pinning_s_per_gib, 0);
  EXPECT_EQ(found.registered, 0);
  probe_registered(device, folder.path("model"), found);
  EXPECT_GT(found.registered, 0) << found.why_not_registered;
  EXPECT_GT(found.registering_s_per_gib, 0);
  EXPECT_EQ(state->n_bad_copies, 0U);
  EXPECT_EQ(state->registered_bytes, 0U);

  state->can_register = false;
  LinkProbe refused;
  probe_registered(device, folder.path("model"), refused);
  EXPECT_EQ(refused.registered, 0);
  EXPECT_NE(refused.why_not_registered.find("refused by the test"), std::string::npos);
}

TEST(MachineProbe, reads_a_file_at_every_depth) {
  const TemporaryFolder folder;
  write_synthetic_model("llama-tiny:F16", folder.path("model"));
  const DiskProbe found = probe_disk(folder.path("model"), {1, 4});
  ASSERT_EQ(found.depths.size(), 2U);
  EXPECT_EQ(found.depths[1].n_reads, 4U);
  EXPECT_GT(found.depths[0].bytes_per_s, 0);
  EXPECT_GE(found.best(), found.depths[1].bytes_per_s);
  EXPECT_MODEL_ERROR(probe_disk(folder.path("none"), {1}), "none");
}

}  // namespace
}  // namespace nightsweep
