// Equal beginnings: prefilled once, and the same bits whether shared or not. Compared with memcmp,
// log-probabilities included.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"
#include "engine/engine_fixture.h"

namespace nightsweep {
namespace {

constexpr size_t kHeadTokens = 150;  // two whole pages and a part

SequenceRequest headed_request(uint32_t number) {
  SequenceRequest request;
  request.handle = number;
  request.prompt = random_tokens(kHeadTokens, 320, 99);
  for (uint32_t token : random_tokens(1 + number * 7 % 30, 320, number + 1))
    request.prompt.push_back(token);
  request.sampling = {.temperature = number % 3 == 0 ? 0.0 : 0.9, .seed = number};
  request.max_tokens = 5 + number * 7 % 30;
  request.ignore_eos = true;
  request.wants_logprobs = true;
  request.n_top_logprobs = 2;
  return request;
}

// The scheduler comes to expect short answers, and then admits too many long ones.
void teach_short_answers(Engine& engine) {
  SequenceRequest brief = headed_request(0);
  brief.prompt.resize(1);
  brief.max_tokens = 1;
  run_all(engine, std::vector<SequenceRequest>(120, brief));
}

std::vector<SequenceRequest> headed_requests_up_to(uint32_t n) {
  std::vector<SequenceRequest> requests;
  for (uint32_t i = 0; i < n; ++i)
    requests.push_back(headed_request(i));
  return requests;
}

class Prefixes : public testing::TestWithParam<std::tuple<bool, KvType>> {
 protected:
  void SetUp() override {
    auto [is_cuda, kv] = GetParam();
    NEEDS_GPU(is_cuda);
    is_cuda_ = is_cuda;
    path_ = folder_.path("tiny.gguf");
    write_tiny_llama(path_, {.n_layers = 3, .type = QuantType::q8_0, .seed = 3});
    options_ = {.ram_bytes = 64 << 20, .max_sequences = 24, .kv_type = kv};
  }
  std::unique_ptr<Engine> open(const EngineOptions& options) {
    return open_engine_on({.cpu = {.n_threads = 2}, .is_cuda = is_cuda_}, path_, options);
  }
  // Each alone, and everything computed.
  std::vector<std::string> alone(const std::vector<SequenceRequest>& requests) {
    EngineOptions own = options_;
    own.shares_prefixes = false;
    auto engine = open(own);
    std::vector<std::string> bits;
    for (const SequenceRequest& request : requests)
      bits.push_back(bits_of(run_all(*engine, {request}).front()));
    EXPECT_EQ(engine->stats().shared_tokens, 0U);
    return bits;
  }
  static void expect_bits(
      const std::vector<SequenceResult>& results,
      const std::vector<std::string>& expected) {
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(bits_of(results[i]), expected[i]) << i;
  }

  TemporaryFolder folder_;
  std::string path_;
  bool is_cuda_ = false;
  EngineOptions options_;
};

TEST_P(Prefixes, shared_pages_give_the_bits_of_own_ones) {
  const std::vector<SequenceRequest> requests = headed_requests_up_to(17);
  const std::vector<std::string> expected = alone(requests);
  // In steps of these rows prompts are cut within pages and at their borders.
  for (uint32_t max_rows : {0U, 64U, 75U, 200U}) {
    EngineOptions options = options_;
    options.max_rows = max_rows;
    auto engine = open(options);
    const std::vector<SequenceResult> results = run_all(*engine, requests);
    expect_bits(results, expected);
    EXPECT_EQ(engine->stats().shared_tokens, 16 * kHeadTokens) << max_rows;
    EXPECT_EQ(results[0].n_shared_tokens, 0U);
    EXPECT_EQ(results[16].n_shared_tokens, kHeadTokens);
    // Nobody is there any more, and what pages held is still of use.
    expect_bits(run_all(*engine, {requests[0]}), {expected[0]});
    EXPECT_EQ(engine->stats().shared_tokens, 17 * kHeadTokens);
  }
}

TEST_P(Prefixes, choices_of_one_prompt_share_it) {
  std::vector<SequenceRequest> requests(5, headed_request(1));
  for (uint32_t i = 0; i < 5; ++i)
    requests[i].sampling.choice = i;
  const std::vector<std::string> expected = alone(requests);
  EXPECT_NE(expected[0], expected[1]);
  auto engine = open(options_);
  expect_bits(run_all(*engine, requests), expected);
  // All but the last token, whose logits each wants.
  EXPECT_EQ(engine->stats().shared_tokens, 4 * (requests[0].prompt.size() - 1));
}

TEST_P(Prefixes, the_first_holder_is_cancelled_in_the_middle_of_its_prefill) {
  const std::vector<SequenceRequest> requests = headed_requests_up_to(6);
  const std::vector<std::string> expected = alone(requests);
  for (int n_steps : {1, 2, 3, 4}) {
    EngineOptions options = options_;
    options.max_rows = 50;
    auto engine = open(options);
    for (const SequenceRequest& request : requests)
      engine->submit(request);
    for (int i = 0; i < n_steps; ++i)
      EXPECT_TRUE(engine->step().finished.empty());
    EXPECT_TRUE(engine->cancel(0));
    size_t n_finished = 0;
    while (engine->n_active() > 0) {
      for (const SequenceResult& result : engine->step().finished) {
        EXPECT_EQ(bits_of(result), expected[result.handle]) << n_steps;
        ++n_finished;
      }
    }
    EXPECT_EQ(n_finished, 5U);
    EXPECT_GE(engine->stats().shared_tokens, 4 * kHeadTokens);
  }
}

TEST_P(Prefixes, a_resumed_answer_shares_the_prompt_of_others) {
  std::vector<SequenceRequest> requests = headed_requests_up_to(6);
  for (SequenceRequest& request : requests)
    request.wants_logprobs = false;
  auto engine = open(options_);
  const std::vector<SequenceResult> whole = run_all(*engine, requests);
  EXPECT_EQ(alone(requests)[5], bits_of(whole[5]));
  for (uint32_t i = 1; i < requests.size(); ++i) {
    const auto kept = static_cast<ptrdiff_t>(i % 2 == 0 ? 1 : whole[i].tokens.size() / 2);
    requests[i].resumed.assign(whole[i].tokens.begin(), whole[i].tokens.begin() + kept);
  }
  engine = open(options_);
  const std::vector<SequenceResult> resumed = run_all(*engine, requests);
  for (size_t i = 0; i < resumed.size(); ++i)
    EXPECT_EQ(resumed[i].tokens, whole[i].tokens) << i;
  EXPECT_GE(engine->stats().shared_tokens, 5 * kHeadTokens);
}

TEST_P(Prefixes, who_scores_its_prompt_gets_every_score) {
  std::vector<SequenceRequest> requests = headed_requests_up_to(4);
  requests[1].echo_logprobs = true;
  requests[2].echo_logprobs = true;
  const std::vector<std::string> expected = alone(requests);
  auto engine = open(options_);
  expect_bits(run_all(*engine, requests), expected);
  EXPECT_EQ(engine->stats().shared_tokens, kHeadTokens) << "the last one";
}

// A system prompt shorter than a page: nobody holds a page of another, and each computes its own
// text only, whatever the source goes on to hold and whether it is still there.
TEST_P(Prefixes, a_beginning_shorter_than_a_page_is_computed_once) {
  std::vector<SequenceRequest> requests;
  for (uint32_t i = 0; i < 9; ++i) {
    requests.push_back(headed_request(i));
    std::vector<uint32_t>& prompt = requests.back().prompt;
    prompt.erase(prompt.begin() + 50, prompt.begin() + kHeadTokens);
  }
  const std::vector<std::string> expected = alone(requests);
  for (uint32_t max_rows : {0U, 16U, 33U}) {
    EngineOptions options = options_;
    options.max_rows = max_rows;
    auto engine = open(options);
    // The first alone: its page goes on with its own text and answer.
    expect_bits(run_all(*engine, {requests[0]}), {expected[0]});
    const uint64_t alone_tokens = engine->stats().prefill_tokens;
    EXPECT_EQ(alone_tokens, requests[0].prompt.size());
    const std::vector<SequenceResult> results = run_all(*engine, requests);
    expect_bits(results, expected);
    uint64_t own_tokens = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].n_shared_tokens, 50U) << i;
      own_tokens += requests[i].prompt.size() - 50;
    }
    EXPECT_EQ(engine->stats().prefill_tokens - alone_tokens, own_tokens) << max_rows;
    EXPECT_EQ(engine->stats().kv_pages_free, engine->stats().kv_pages);
  }
}

TEST_P(Prefixes, numbers_that_are_verified_are_computed_by_each) {
  const std::vector<SequenceRequest> requests = headed_requests_up_to(3);
  const std::vector<std::string> expected = alone(requests);
  EngineOptions options = options_;
  options.verify_numerics = true;
  auto engine = open(options);
  expect_bits(run_all(*engine, requests), expected);
  EXPECT_EQ(engine->stats().shared_tokens, 0U);
}

// Prompts of two different tokens in runs: every kind of equal beginning, within pages and over
// them, of prompts and of answers that were resumed; cut anywhere, cancelled anywhere, in memory
// for all and for a few.
TEST_P(Prefixes, random_prompts_of_a_tiny_alphabet_give_the_bits_of_own_pages) {
  constexpr uint32_t kRequests = 24;
  std::mt19937 random(5);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::vector<SequenceRequest> requests;
  for (uint32_t i = 0; i < kRequests; ++i) {
    SequenceRequest request;
    request.handle = i;
    // A piece of an earlier prompt, then runs.
    if (i > 0 && below(5) > 0) request.prompt = requests[below(i)].prompt;
    request.prompt.resize(below(static_cast<uint32_t>(request.prompt.size()) + 1));
    const size_t length = request.prompt.size() + 1 + below(120);
    while (request.prompt.size() < length)
      request.prompt.insert(request.prompt.end(), 1 + below(25), 7 + below(2));
    request.sampling = {.temperature = i % 3 == 0 ? 0.0 : 0.9, .seed = i / 2};
    request.max_tokens = 1 + below(120);
    request.ignore_eos = true;
    request.wants_logprobs = i % 4 != 0;
    request.echo_logprobs = i % 7 == 3;
    requests.push_back(std::move(request));
  }
  const std::vector<std::string> expected = alone(requests);
  uint64_t evictions = 0;
  uint64_t shared = 0;
  for (uint32_t round = 0; round < 16; ++round) {
    EngineOptions options = options_;
    options.max_rows = 8 + below(120);
    options.max_sequences = 2 + below(20);
    if (round % 2 == 1 && !is_cuda_) options.ram_bytes = (700U + below(500)) << 10;
    std::unique_ptr<Engine> engine;
    try {
      engine = open(options);
    } catch (const Error& too_small) {
      continue;
    }
    teach_short_answers(*engine);
    std::vector<uint32_t> order(kRequests);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    size_t n_submitted = 0;
    while (n_submitted < kRequests || engine->n_active() > 0) {
      for (uint32_t n = below(6); n > 0 && n_submitted < kRequests; --n)
        engine->submit(requests[order[n_submitted++]]);
      if (below(30) == 0) engine->cancel(below(kRequests));
      for (const SequenceResult& result : engine->step().finished) {
        if (result.reason == FinishReason::error) continue;  // too long for the budget: said so
        EXPECT_EQ(bits_of(result), expected[result.handle]) << result.handle << ", " << round;
      }
    }
    EXPECT_EQ(engine->stats().kv_pages_free, engine->stats().kv_pages) << round;
    evictions += engine->stats().evictions;
    shared += engine->stats().shared_tokens;
  }
  EXPECT_GT(shared, 0U);
  EXPECT_TRUE(is_cuda_ || evictions > 0);
}

INSTANTIATE_TEST_SUITE_P(
    kv,
    Prefixes,
    testing::Combine(
        testing::Values(false),
        testing::Values(KvType::f32, KvType::f16, KvType::q8_0)),
    [](const auto& instance) {
      return std::string("cpu_") + kv_type_name(std::get<1>(instance.param));
    });
INSTANTIATE_TEST_SUITE_P(
    kv_cuda,
    Prefixes,
    testing::Combine(testing::Values(true), testing::Values(KvType::f16, KvType::q8_0)),
    [](const auto& instance) {
      return std::string("cuda_") + kv_type_name(std::get<1>(instance.param));
    });

// Owners are evicted too: pages run short in many ways, and some prefixes belong to the youngest.
TEST(PrefixesInLittleMemory, evicted_owners_and_sharers_go_on_with_the_same_bits) {
  TemporaryFolder folder;
  const std::string path = folder.path("tiny.gguf");
  write_tiny_llama(path, {.seed = 3});
  std::vector<SequenceRequest> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    requests.push_back(headed_request(i));
    // Two families, the second one younger.
    if (i >= 5) requests.back().prompt[0] = 5;
    requests.back().max_tokens = 120;
  }
  EngineOptions roomy{.ram_bytes = 64 << 20, .max_sequences = 12, .max_rows = 60};
  roomy.shares_prefixes = false;
  const std::vector<SequenceResult> expected =
      run_all(*open_engine(path, {.n_threads = 2}, roomy), requests);
  uint64_t evictions = 0;
  uint64_t shared = 0;
  for (uint64_t budget : {600U << 10, 750U << 10, 900U << 10, 1100U << 10}) {
    EngineOptions tight = roomy;
    tight.shares_prefixes = true;
    tight.ram_bytes = budget;
    std::unique_ptr<Engine> engine;
    try {
      engine = open_engine(path, {.n_threads = 2}, tight);
    } catch (const Error& too_small) {
      continue;
    }
    teach_short_answers(*engine);
    const std::vector<SequenceResult> got = run_all(*engine, requests);
    size_t n_compared = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i].reason == FinishReason::error) continue;  // too long for the budget: said so
      EXPECT_EQ(bits_of(got[i]), bits_of(expected[i])) << i << " at " << budget;
      ++n_compared;
    }
    EXPECT_GT(n_compared, 0U) << "at " << budget;
    EXPECT_EQ(engine->stats().kv_pages_free, engine->stats().kv_pages);
    evictions += engine->stats().evictions;
    shared += engine->stats().shared_tokens;
  }
  EXPECT_GT(evictions, 0U);
  EXPECT_GT(shared, 0U);
}

}  // namespace
}  // namespace nightsweep
