// A step that works its rows in batches, and holds the weights of a window meanwhile, gives the
// bits of one that works them at once, and its weights pass once.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/device_stream.h"
#include "engine/engine_fixture.h"
#include "engine/model.h"
#include "support/detached_device.h"

namespace nightsweep {
namespace {

enum class BatchesOn { cpu_exact, cpu_fast, cpu_behind_a_link, cuda };

class RowBatches : public testing::TestWithParam<std::tuple<QuantType, BatchesOn, KvType>> {
 protected:
  static constexpr uint32_t kMaxRows = 300;
  static constexpr uint32_t kMaxLogitRows = 6;

  void SetUp() override {
    std::tie(type_, on_, kv_) = GetParam();
    NEEDS_GPU(on_ == BatchesOn::cuda);
    TinyModelOptions model{.n_layers = 3, .n_vocab = 320, .type = type_, .seed = 7};
    if (quant_traits(type_).block_elems == 256) {
      model.dim = 256;
      model.ff_dim = 512;
    }
    write_tiny_llama(path_, model);
    gguf_ = open_gguf(path_);
    config_ = read_model_config(*gguf_);
  }

  std::unique_ptr<Device> make_test_device() {
    if (on_ == BatchesOn::cuda) return make_cuda_device({});
    const MathMode math = on_ == BatchesOn::cpu_exact ? MathMode::exact : MathMode::fast;
    auto cpu = make_cpu_device({.math = math, .n_threads = 2});
    if (on_ != BatchesOn::cpu_behind_a_link) return cpu;
    return std::make_unique<DetachedDevice>(std::move(cpu), link_);
  }

  // Rows [first, first + n) of a sequence of tokens of its own.
  static void add(
      Step& step,
      std::span<const uint32_t> table,
      const std::vector<uint32_t>& tokens,
      uint32_t first,
      uint32_t n) {
    step.add_sequence(table);
    for (uint32_t at = first; at < first + n; ++at)
      step.add_row(tokens[at], at, at + 1 == first + n);
  }

  // Two steps: prompts, of which the second has its first page from the first within the step, and
  // then their next tokens beside another prompt.
  std::vector<float> two_steps(uint32_t batch_rows, uint64_t resident_part) {
    const auto device = make_test_device();
    const StepLimits limits{
        .max_rows = kMaxRows, .max_logit_rows = kMaxLogitRows, .batch_rows = batch_rows};
    const auto model = Model::make(
        *gguf_, config_, *device,
        {.limits = limits, .max_slice_bytes = 9000, .verify_numerics = true});
    const WeightPlan& plan = model->weight_plan();
    const uint64_t all = packed_bytes(plan, *device);
    link_->n_repacks = 0;
    const auto stream = WeightStream::open(
        *gguf_, plan, *device,
        {.resident_bytes = all * resident_part / 2,
         .ring_bytes = device->shares_host_memory() ? 4 * all + min_ring_bytes(plan)
                                                    : min_device_ring_bytes(plan),
         .host_bytes = 64 << 20,
         .holds_windows = limits.has_batches()});
    const KvShape shape{
        .type = kv_, .n_kv_heads = config_.n_kv_heads, .head_dim = config_.head_dim};
    const KvCache kv(*device, shape, config_.n_layers, 9);
    const std::vector<uint32_t> pages[] = {{3, 1}, {3, 7}, {0, 5}, {2, 8}};
    const std::vector<uint32_t> head = random_tokens(130, 320, 1);
    std::vector<uint32_t> like_head = head;
    std::iota(like_head.begin() + kKvPageTokens, like_head.end(), 20U);
    const std::vector<uint32_t> other = random_tokens(130, 320, 2);
    const std::vector<uint32_t> late = random_tokens(130, 320, 3);

    std::vector<float> logits;
    const auto run = [&](const Step& step) {
      const size_t count = step.logit_rows.size() * config_.n_vocab;
      const float* found = device->read_back(model->forward(*stream, kv, step), count);
      logits.insert(logits.end(), found, found + count);
      EXPECT_EQ(model->numeric_faults().size(), step.n_rows());
      for (const NumericFault& fault : model->numeric_faults())
        EXPECT_EQ(fault.place, NumericFault::Place::none);
    };
    Step step;
    add(step, pages[0], head, 0, 101);
    add(step, pages[1], like_head, kKvPageTokens, 27);
    add(step, pages[2], other, 0, 71);
    run(step);
    step.clear();
    add(step, pages[0], head, 101, 1);
    add(step, pages[3], late, 0, 90);
    add(step, pages[1], like_head, kKvPageTokens + 27, 1);
    add(step, pages[2], other, 71, 1);
    run(step);
    device->synchronize();
    EXPECT_EQ(stream->stats().sweeps, 2U);
    EXPECT_EQ(link_->n_bad_copies, 0U);
    return logits;
  }

  uint64_t n_extents() const {
    uint64_t n = 0;
    for (const WeightSlice& slice : Model::cut(*gguf_, config_, 9000).plan.slices)
      n += slice.extents.size();
    return n;
  }

  QuantType type_ = QuantType::f32;
  BatchesOn on_ = BatchesOn::cpu_exact;
  KvType kv_ = KvType::f16;
  TemporaryFolder folder_;
  std::string path_ = folder_.path("tiny.gguf");
  std::shared_ptr<const GgufModel> gguf_;
  ModelConfig config_;
  std::shared_ptr<LinkState> link_ = std::make_shared<LinkState>();
};

TEST_P(RowBatches, change_no_bit_and_let_weights_pass_once) {
  const std::vector<float> expected = two_steps(0, 2);
  ASSERT_EQ(expected.size(), 7 * config_.n_vocab);
  for (const uint32_t batch_rows : {0U, 6U, 7U, 16U, 63U, 64U, 65U, 128U, 198U, 199U}) {
    for (const uint64_t resident_part : {0ULL, 1ULL, 2ULL}) {
      const std::vector<float> found = two_steps(batch_rows, resident_part);
      ASSERT_EQ(found.size(), expected.size());
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
          << batch_rows << " rows at once, " << resident_part << " halves resident";
      if (on_ == BatchesOn::cpu_behind_a_link && resident_part == 0) {
        EXPECT_EQ(link_->n_repacks, 2 * n_extents()) << "once a sweep, not once a batch";
      }
    }
  }
}

std::string name_of_batches(const testing::TestParamInfo<RowBatches::ParamType>& instance) {
  auto [type, on, kv] = instance.param;
  const char* devices[] = {"_exact_", "_fast_", "_link_", "_cuda_"};
  return std::string(quant_traits(type).name) + devices[static_cast<int>(on)] + kv_type_name(kv);
}

INSTANTIATE_TEST_SUITE_P(
    types,
    RowBatches,
    testing::Values(
        std::tuple(QuantType::f32, BatchesOn::cpu_exact, KvType::f32),
        std::tuple(QuantType::q4_1, BatchesOn::cpu_fast, KvType::f16),
        std::tuple(QuantType::q8_0, BatchesOn::cpu_behind_a_link, KvType::q8_0),
        std::tuple(QuantType::q4_k, BatchesOn::cpu_behind_a_link, KvType::f16),
        std::tuple(QuantType::f16, BatchesOn::cuda, KvType::f16),
        std::tuple(QuantType::q8_0, BatchesOn::cuda, KvType::q8_0),
        std::tuple(QuantType::q4_k, BatchesOn::cuda, KvType::f16),
        std::tuple(QuantType::q6_k, BatchesOn::cuda, KvType::q8_0)),
    name_of_batches);

// The engine takes them by itself where weights stream and a step has many rows.
TEST(RowBatchesOfAnEngine, answers_are_those_of_a_resident_model) {
  TemporaryFolder folder;
  const std::string path = folder.path("tiny.gguf");
  write_tiny_llama(path, {.type = QuantType::q8_0, .seed = 5});
  const auto link = std::make_shared<LinkState>();
  std::vector<SequenceRequest> requests(12);
  for (uint32_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = random_tokens(90 + 17 * i, 320, i / 3);  // beginnings that are shared
    requests[i].max_tokens = 4;
    requests[i].ignore_eos = true;
    requests[i].wants_logprobs = true;
  }
  const auto answers = [&](uint32_t max_rows, uint64_t resident_bytes) {
    const auto engine = Engine::open(
        open_gguf(path), std::make_unique<DetachedDevice>(make_cpu_device({.n_threads = 2}), link),
        {.ram_bytes = 64 << 20,
         .max_sequences = 12,
         .most_resident_bytes = resident_bytes,
         .max_rows = max_rows});
    link->n_begun = 0;
    std::vector<std::string> bits;
    for (const SequenceResult& result : run_all(*engine, requests))
      bits.push_back(bits_of(result));
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.stream.sweeps, stats.steps);
    if (resident_bytes == 0 && max_rows > 512) {
      EXPECT_GT(link->n_begun, stats.steps) << "no step had batches";
    } else {
      EXPECT_EQ(link->n_begun, stats.steps);
    }
    return bits;
  };
  const std::vector<std::string> expected = answers(100, UINT64_MAX);
  EXPECT_EQ(answers(2000, UINT64_MAX), expected);
  EXPECT_EQ(answers(2000, 0), expected);
  EXPECT_EQ(answers(513, 0), expected);
  EXPECT_EQ(answers(512, 0), expected);
}

}  // namespace
}  // namespace nightsweep
