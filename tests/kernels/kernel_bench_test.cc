#include "kernels/kernel_bench.h"

#include <gtest/gtest.h>

#include <map>

#include "support/test_device.h"

namespace nightsweep {
namespace {

class Collected final : public KernelBenchSink {
 public:
  void take(const KernelTime& time) override { times.push_back(time); }
  void take(const StepShare& share) override { shares.push_back(share); }
  std::vector<KernelTime> times;
  std::vector<StepShare> shares;
};

BenchModel tiny() {
  return {
      .name = "tiny",
      .dim = 256,
      .n_heads = 4,
      .n_kv_heads = 2,
      .head_dim = 64,
      .ff_dim = 512,
      .n_layers = 3,
      .n_vocab = 512,
      .linear = {
          {"qkv", 256, {{QuantType::q4_k, 256}, {QuantType::q6_k, 128}, {QuantType::q8_0, 128}}, 3},
          {"head", 256, {{QuantType::q6_k, 512}}, 1}}};
}

KernelBenchOptions quick(std::vector<uint32_t> rows) {
  return {.rows = std::move(rows), .context_tokens = 70, .rotated_bytes = 1 << 20, .least_s = 1e-5};
}

class KernelBenchOf : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { NEEDS_GPU(GetParam()); }
  static std::unique_ptr<Device> device() {
    DeviceSpec spec;
    spec.cpu.n_threads = 1;
    spec.is_cuda = GetParam();
    auto made = make_device(spec);
    made->reserve(8, 512);
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(devices, KernelBenchOf, testing::Bool(), [](const auto& shown) {
  return std::string(shown.param ? "cuda" : "cpu");
});

TEST_P(KernelBenchOf, times_every_operator_at_every_number_of_rows) {
  const auto on = device();
  Collected found;
  bench_model(*on, tiny(), quick({1, 3}), found);
  std::map<std::string, int> counts;
  for (const KernelTime& time : found.times) {
    EXPECT_GT(time.seconds, 0) << time.name;
    EXPECT_GT(time.bytes, 0) << time.name;
    EXPECT_GT(time.calls, 0) << time.name;
    ++counts[std::string(time.group) + " " + time.name];
  }
  for (const char* name :
       {"linear qkv", "linear head", "attention f16", "small norm", "small rope+store",
        "small swiglu", "small gather"}) {
    EXPECT_EQ(counts[name], 2) << name;
  }
  EXPECT_EQ(counts["small pick"], on->can_pick() ? 2 : 0);
}

TEST_P(KernelBenchOf, counts_bytes_and_operations_of_linear) {
  const auto on = device();
  Collected found;
  bench_model(*on, tiny(), quick({3}), found);
  const KernelTime& qkv = found.times.at(0);
  EXPECT_EQ(qkv.name, "qkv");
  EXPECT_EQ(qkv.flops, 2.0 * 3 * 256 * 512);
  const size_t bytes = on->packed_bytes(QuantType::q4_k, 256, 256) +
                       on->packed_bytes(QuantType::q6_k, 128, 256) +
                       on->packed_bytes(QuantType::q8_0, 128, 256);
  EXPECT_EQ(qkv.bytes, static_cast<double>(bytes));
}

TEST_P(KernelBenchOf, a_step_is_its_operators_as_often_as_they_come) {
  const auto on = device();
  Collected found;
  bench_model(*on, tiny(), quick({2}), found);
  ASSERT_EQ(found.shares.size(), 1U);
  const StepShare& share = found.shares[0];
  std::map<std::string, double> sums;
  for (const KernelTime& time : found.times)
    sums[std::string(time.group)] += time.seconds * time.calls;
  EXPECT_EQ(share.rows, 2U);
  EXPECT_DOUBLE_EQ(share.linear_s, sums["linear"]);
  EXPECT_DOUBLE_EQ(share.attention_s, sums["attention"]);
  EXPECT_DOUBLE_EQ(share.small_s, sums["small"]);
  EXPECT_DOUBLE_EQ(
      share.share_of_small(), sums["small"] / (sums["linear"] + sums["attention"] + sums["small"]));
}

TEST(KernelBench, models_have_the_bytes_of_their_files) {
  const auto cpu = make_cpu_device({.n_threads = 1});
  const auto gigabytes = [&](const BenchModel& model) {
    double bytes = 0;
    for (const BenchLinear& shape : model.linear) {
      for (const BenchLinear::Part& part : shape.parts) {
        bytes +=
            shape.calls * static_cast<double>(quant_bytes(part.type, shape.n_cols)) * part.n_rows;
      }
    }
    return bytes * 1e-9;
  };
  // Of the published files, less the embedding.
  const std::vector<BenchModel> models = bench_models();
  EXPECT_NEAR(gigabytes(models.at(0)), 4.92 - 0.30, 0.05);
  EXPECT_NEAR(gigabytes(models.at(1)), 8.54 - 0.56, 0.05);
  EXPECT_NEAR(gigabytes(models.at(2)), 42.5 - 0.59, 0.3);
}

}  // namespace
}  // namespace nightsweep
