// Promise 2, with memcmp: a sequence gives the same bits alone and in any company, at any place, in
// any chunks, budgets, threads and batches, evicted or resumed. Log-probabilities are compared
// bit for bit, so a difference shows before it changes a token.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "engine/engine_fixture.h"
#include "engine/splitting_device.h"

namespace nightsweep {
namespace {

SequenceRequest request_number(uint32_t number) {
  SequenceRequest request;
  request.prompt = random_tokens(1 + number * 13 % 90, 320, number + 1);
  request.sampling = {
      .temperature = number % 3 == 0 ? 0.0 : 0.9,
      .top_p = number % 2 == 0 ? 0.95 : 1.0,
      .repetition_penalty = number % 5 == 0 ? 1.1 : 1.0,
      .seed = number};
  request.max_tokens = 5 + number * 7 % 30;
  request.ignore_eos = true;
  request.wants_logprobs = true;
  request.n_top_logprobs = 2;
  return request;
}

std::vector<SequenceRequest> requests_up_to(uint32_t n) {
  std::vector<SequenceRequest> requests;
  for (uint32_t i = 0; i < n; ++i)
    requests.push_back(request_number(i));
  return requests;
}

enum class On { cpu_exact, cpu_fast, cuda };

class Invariance : public testing::TestWithParam<std::tuple<QuantType, On, KvType>> {
 protected:
  void SetUp() override {
    auto [type, on, kv] = GetParam();
    is_cuda_ = on == On::cuda;
    NEEDS_GPU(is_cuda_);
    path_ = folder_.path("tiny.gguf");
    TinyModelOptions model{.n_layers = 6, .n_vocab = 320, .type = type, .seed = 3};
    if (quant_traits(type).block_elems == 256) {
      model.n_layers = 2;
      model.dim = 256;
      model.ff_dim = 512;
    }
    write_tiny_llama(path_, model);
    cpu_ = {.math = on == On::cpu_exact ? MathMode::exact : MathMode::fast, .n_threads = 2};
    options_ = {.ram_bytes = 64 << 20, .max_sequences = 80, .kv_type = kv};
  }

  std::vector<std::string> run(
      const std::vector<SequenceRequest>& requests,
      const CpuOptions& cpu,
      const EngineOptions& options) {
    auto engine = open({.cpu = cpu, .is_cuda = is_cuda_}, options);
    std::vector<std::string> bits;
    for (const SequenceResult& result : run_all(*engine, requests)) {
      EXPECT_EQ(result.error, "");
      bits.push_back(bits_of(result));
    }
    stats_ = engine->stats();
    return bits;
  }

  std::unique_ptr<Engine> open(const DeviceSpec& spec, const EngineOptions& options) {
    return open_engine_on(spec, path_, options);
  }

  std::vector<std::string> alone(uint32_t n) {
    auto engine = open({.cpu = cpu_, .is_cuda = is_cuda_}, options_);
    std::vector<std::string> bits;
    for (uint32_t i = 0; i < n; ++i) {
      bits.push_back(bits_of(run_all(*engine, {request_number(i)}).front()));
    }
    return bits;
  }

  TemporaryFolder folder_;
  std::string path_;
  bool is_cuda_ = false;
  CpuOptions cpu_;
  EngineOptions options_;
  EngineStats stats_;
};

TEST_P(Invariance, a_sequence_alone_equals_itself_in_any_company) {
  std::vector<std::string> expected = alone(64);
  for (uint32_t n : {2U, 3U, 17U, 64U}) {
    std::vector<std::string> got = run(requests_up_to(n), cpu_, options_);
    for (uint32_t i = 0; i < n; ++i)
      EXPECT_EQ(got[i], expected[i]) << i << " of " << n;
  }
}

TEST_P(Invariance, place_chunks_threads_and_batch_change_nothing) {
  std::vector<SequenceRequest> requests = requests_up_to(17);
  std::vector<std::string> expected = run(requests, cpu_, options_);

  std::vector<SequenceRequest> reversed(requests.rbegin(), requests.rend());
  std::vector<std::string> got = run(reversed, cpu_, options_);
  EXPECT_EQ(std::vector<std::string>(got.rbegin(), got.rend()), expected);

  for (uint32_t max_rows : {80U, 81U, 113U, 400U}) {
    EngineOptions options = options_;
    options.max_rows = max_rows;
    EXPECT_EQ(run(requests, cpu_, options), expected) << max_rows << " rows";
  }
  for (uint32_t n_threads : {1U, 3U}) {
    CpuOptions cpu = cpu_;
    cpu.n_threads = n_threads;
    EXPECT_EQ(run(requests, cpu, options_), expected) << n_threads << " threads";
  }
  for (uint32_t batch : {1U, 2U, 7U}) {
    EngineOptions options = options_;
    options.max_sequences = batch;
    options.max_rows = 3 * batch;
    EXPECT_EQ(run(requests, cpu_, options), expected) << "batch of " << batch;
  }
}

TEST_P(Invariance, every_instruction_set_gives_the_same_bits) {
  if (is_cuda_) GTEST_SKIP() << "a GPU has one set";
  std::vector<SequenceRequest> requests = requests_up_to(9);
  std::vector<std::string> expected = run(requests, cpu_, options_);
  for (const char* set : {"generic", "avx2", "avx512"}) {
    CpuOptions cpu = cpu_;
    cpu.instruction_set = set;
    try {
      EXPECT_EQ(run(requests, cpu, options_), expected) << set;
    } catch (const Error& missing) {
      EXPECT_EQ(missing.kind(), ErrorKind::device);
      std::printf("SKIPPED for %s: %s\n", set, missing.what());
    }
  }
}

TEST_P(Invariance, a_streamed_model_equals_a_resident_one) {
  std::vector<SequenceRequest> requests = requests_up_to(6);
  EngineOptions options = options_;
  options.max_sequences = 4;
  options.max_rows = 16;
  std::vector<std::string> expected = run(requests, cpu_, options);
  ASSERT_EQ(stats_.stream.streamed_bytes, 0U);
  if (is_cuda_) {
    // A tiny model always fits: the budget is of the weights alone.
    for (uint64_t resident : {0ULL, 300ULL << 10, 700ULL << 10}) {
      options.most_resident_bytes = resident;
      EXPECT_EQ(run(requests, cpu_, options), expected) << resident << " bytes";
      EXPECT_LE(stats_.stream.resident_bytes, resident);
      EXPECT_TRUE(stats_.stream.copied_bytes > 0 || resident > 0);
    }
    return;
  }
  bool streamed = false;
  for (uint64_t budget = 300 << 10; budget < 4U << 20; budget += budget / 5) {
    options.ram_bytes = budget;
    try {
      EXPECT_EQ(run(requests, cpu_, options), expected) << budget << " bytes";
      streamed |= stats_.stream.streamed_bytes > 0;
    } catch (const Error& too_small) {
      EXPECT_EQ(too_small.kind(), ErrorKind::device) << too_small.what();
    }
  }
  EXPECT_TRUE(streamed) << "no budget made the model stream";
}

TEST_P(Invariance, an_answer_resumed_at_any_token_goes_on_with_the_same_bits) {
  SequenceRequest request = request_number(4);
  auto engine = open({.cpu = cpu_, .is_cuda = is_cuda_}, options_);
  SequenceResult whole = run_all(*engine, {request}).front();
  for (size_t kept = 0; kept <= whole.tokens.size(); ++kept) {
    SequenceRequest resumed = request;
    resumed.resumed.assign(
        whole.tokens.begin(), whole.tokens.begin() + static_cast<ptrdiff_t>(kept));
    EXPECT_EQ(bits_of(run_all(*engine, {resumed}).front()), bits_of(whole)) << kept;
  }
}

std::string name_of(const testing::TestParamInfo<Invariance::ParamType>& instance) {
  auto [type, on, kv] = instance.param;
  const char* devices[] = {"_exact_", "_fast_", "_cuda_"};
  const char* caches[] = {"f32", "f16", "q8_0"};
  return std::string(quant_traits(type).name) + devices[static_cast<int>(on)] +
         caches[static_cast<int>(kv)];
}

INSTANTIATE_TEST_SUITE_P(
    types,
    Invariance,
    testing::Values(
        std::tuple(QuantType::f32, On::cpu_exact, KvType::f32),
        std::tuple(QuantType::q4_1, On::cpu_fast, KvType::f16),
        std::tuple(QuantType::q8_0, On::cpu_fast, KvType::q8_0),
        std::tuple(QuantType::q4_k, On::cpu_fast, KvType::f16),
        std::tuple(QuantType::q6_k, On::cpu_exact, KvType::q8_0),
        std::tuple(QuantType::f16, On::cuda, KvType::f16),
        std::tuple(QuantType::f16, On::cuda, KvType::q8_0),
        std::tuple(QuantType::q4_1, On::cuda, KvType::f16),
        std::tuple(QuantType::q8_0, On::cuda, KvType::q8_0),
        std::tuple(QuantType::q4_k, On::cuda, KvType::f16),
        std::tuple(QuantType::q5_k, On::cuda, KvType::q8_0),
        std::tuple(QuantType::q6_k, On::cuda, KvType::q8_0)),
    name_of);

// Without log-probabilities a GPU chooses the tokens itself: prompts and decode rows mixed, up to
// 512 sequences, against each alone.
TEST_P(Invariance, tokens_chosen_by_the_device_do_not_depend_on_the_company) {
  const uint32_t most = is_cuda_ ? 512 : 17;
  const auto plain = [](uint32_t number) {
    SequenceRequest request = request_number(number % 64);
    request.wants_logprobs = false;
    request.n_top_logprobs = 0;
    return request;
  };
  EngineOptions options = options_;
  options.max_sequences = most;
  auto engine = open({.cpu = cpu_, .is_cuda = is_cuda_}, options);
  std::vector<std::vector<uint32_t>> expected;
  for (uint32_t i = 0; i < std::min(most, 64U); ++i)
    expected.push_back(run_all(*engine, {plain(i)}).front().tokens);
  for (uint32_t n : {2U, 3U, 8U, 16U, 17U, 63U, 64U, 65U, 128U, 256U, 512U}) {
    if (n > most) break;
    std::vector<SequenceRequest> requests;
    for (uint32_t i = 0; i < n; ++i)
      requests.push_back(plain(i));
    std::vector<SequenceResult> got = run_all(*engine, requests);
    for (uint32_t i = 0; i < n; ++i)
      EXPECT_EQ(got[i].tokens, expected[i % 64]) << i << " of " << n;
  }
}

// Steps of exactly so many rows, prompt chunks beside decode rows: the tile and the cut of
// attention change with the number of rows, the bits do not.
TEST_P(Invariance, a_step_of_any_number_of_rows_has_the_same_bits) {
  const uint32_t most = is_cuda_ ? 512 : 65;
  const uint32_t n_sequences = is_cuda_ ? 40 : 12;
  const std::vector<std::string> expected = alone(n_sequences);
  for (const uint32_t n_rows : {1U, 2U, 3U, 8U, 16U, 17U, 63U, 64U, 65U, 128U, 256U, 512U}) {
    if (n_rows > most) break;
    EngineOptions options = options_;
    options.max_rows = n_rows;
    options.max_sequences = std::min(n_rows, n_rows < 8 ? 2U : n_sequences);
    const auto engine = open({.cpu = cpu_, .is_cuda = is_cuda_}, options);
    std::vector<SequenceRequest> requests = requests_up_to(n_sequences);
    for (uint32_t i = 0; i < n_sequences; ++i) {
      requests[i].handle = i;
      engine->submit(std::move(requests[i]));
    }
    bool was_full = false;
    bool was_mixed = false;
    while (engine->n_active() > 0) {
      const StepReport report = engine->step();
      was_full |= report.rows == n_rows;
      was_mixed |= report.rows == n_rows && report.decode_rows > 0 && report.prefill_rows > 0;
      for (const SequenceResult& result : report.finished)
        EXPECT_EQ(bits_of(result), expected[result.handle]) << result.handle << ", " << n_rows;
    }
    EXPECT_TRUE(was_full) << n_rows;
    EXPECT_TRUE(was_mixed || n_rows == 1) << n_rows;
  }
}

TEST(InvarianceOfMemory, an_evicted_sequence_goes_on_with_the_same_bits) {
  TemporaryFolder folder;
  std::string path = folder.path("tiny.gguf");
  write_tiny_llama(path, {.seed = 3});
  CpuOptions cpu{.n_threads = 2};
  std::vector<SequenceRequest> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    requests.push_back(request_number(i));
    requests.back().max_tokens = 300;  // more than the usual answer: pages run short
  }
  EngineOptions roomy{.ram_bytes = 64 << 20, .max_sequences = 12, .max_rows = 24};
  auto engine = open_engine(path, cpu, roomy);
  std::vector<SequenceResult> expected = run_all(*engine, requests);
  ASSERT_EQ(engine->stats().evictions, 0U);

  uint64_t evictions = 0;
  for (uint64_t budget = 500 << 10; budget < 3U << 20; budget += budget / 5) {
    EngineOptions tight = roomy;
    tight.ram_bytes = budget;
    try {
      engine = open_engine(path, cpu, tight);
    } catch (const Error&) {
      continue;
    }
    // Short answers first: the scheduler comes to expect them, and admits too many long ones.
    std::vector<SequenceRequest> short_ones(120, request_number(0));
    for (SequenceRequest& request : short_ones)
      request.max_tokens = 1;
    run_all(*engine, short_ones);
    std::vector<SequenceResult> got = run_all(*engine, requests);
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i].reason == FinishReason::error) continue;  // too long for the budget: said so
      EXPECT_EQ(bits_of(got[i]), bits_of(expected[i])) << i << " at " << budget;
    }
    evictions += engine->stats().evictions;
  }
  EXPECT_GT(evictions, 0U);
}

TEST(InvarianceControl, a_device_that_splits_sums_by_batch_size_is_caught) {
  TemporaryFolder folder;
  std::string path = folder.path("tiny.gguf");
  write_tiny_llama(path, {.seed = 3});
  EngineOptions options{.ram_bytes = 64 << 20, .max_sequences = 32, .max_rows = 32};
  auto engine = Engine::open(
      open_gguf(path), std::make_unique<SplittingDevice>(make_cpu_device({.n_threads = 1})),
      options);
  std::vector<SequenceRequest> requests = requests_up_to(17);
  std::vector<SequenceResult> together = run_all(*engine, requests);
  int differing = 0;
  for (uint32_t i = 0; i < requests.size(); ++i) {
    SequenceResult alone = run_all(*engine, {requests[i]}).front();
    differing += bits_of(alone) == bits_of(together[i]) ? 0 : 1;
  }
  EXPECT_GT(differing, 0);
}

}  // namespace
}  // namespace nightsweep
