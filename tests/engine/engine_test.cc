// The engine as its callers see it: continuous batching, limits, errors of one sequence.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "base/error.h"
#include "engine/engine_fixture.h"

namespace nightsweep {
namespace {

class TinyEngine : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.path("tiny.gguf");
    write_tiny_llama(path_, {});
    engine_ = open_engine(path_, {.n_threads = 1}, {.ram_bytes = 64 << 20, .max_sequences = 4});
  }

  SequenceRequest request(uint64_t handle, uint64_t max_tokens) {
    SequenceRequest made;
    made.handle = handle;
    made.prompt = random_tokens(10, 320, handle);
    made.max_tokens = max_tokens;
    made.ignore_eos = true;
    made.sampling.temperature = 0;
    return made;
  }

  TemporaryFolder folder_;
  std::string path_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(TinyEngine, sequences_join_and_leave_at_every_step) {
  for (uint64_t i = 0; i < 10; ++i)
    engine_->submit(request(i, 1 + i));
  std::vector<uint64_t> order;
  size_t most = 0;
  while (engine_->n_active() > 0) {
    StepReport report = engine_->step();
    most = std::max(most, report.members.size());
    for (const SequenceResult& result : report.finished)
      order.push_back(result.handle);
  }
  EXPECT_EQ(most, 4U);
  ASSERT_EQ(order.size(), 10U);
  // Admitted first come first served, and the shorter one leaves first.
  for (size_t i = 0; i < order.size(); ++i)
    EXPECT_EQ(order[i], i);
}

TEST_F(TinyEngine, a_report_holds_every_new_token) {
  engine_->submit(request(7, 5));
  std::vector<uint32_t> seen;
  SequenceResult result;
  while (engine_->n_active() > 0) {
    StepReport report = engine_->step();
    for (auto [handle, token] : report.new_tokens)
      seen.push_back(token);
    if (!report.finished.empty()) result = report.finished.front();
  }
  EXPECT_EQ(result.tokens, seen);
  EXPECT_EQ(result.reason, FinishReason::length);
  EXPECT_EQ(result.n_prompt_tokens, 10U);
  EXPECT_EQ(result.n_answer_tokens, 5U);
}

TEST_F(TinyEngine, an_answer_without_max_tokens_ends_with_the_context) {
  SequenceRequest open_ended = request(0, 0);
  open_ended.max_tokens.reset();
  SequenceResult result = run_all(*engine_, {open_ended}).front();
  EXPECT_EQ(result.reason, FinishReason::length);
  EXPECT_EQ(result.n_prompt_tokens + result.n_answer_tokens, engine_->context_tokens());
}

TEST_F(TinyEngine, a_cancelled_sequence_frees_its_pages_at_once) {
  uint32_t free_before = engine_->stats().kv_pages_free;
  engine_->submit(request(1, 100));
  engine_->step();
  EXPECT_LT(engine_->stats().kv_pages_free, free_before);
  EXPECT_TRUE(engine_->cancel(1));
  EXPECT_EQ(engine_->stats().kv_pages_free, free_before);
  EXPECT_FALSE(engine_->cancel(1));
  EXPECT_EQ(engine_->n_active(), 0U);
}

TEST_F(TinyEngine, max_tokens_0_scores_the_prompt_and_draws_nothing) {
  SequenceRequest scoring = request(0, 0);
  scoring.echo_logprobs = true;
  scoring.n_top_logprobs = 1;
  SequenceResult result = run_all(*engine_, {scoring}).front();
  EXPECT_EQ(result.reason, FinishReason::length);
  EXPECT_TRUE(result.tokens.empty());
  ASSERT_EQ(result.prompt_logprobs.size(), 10U);
  for (size_t i = 0; i < 10; ++i)
    EXPECT_EQ(result.prompt_logprobs[i].id, scoring.prompt[i]);
  EXPECT_LT(result.prompt_logprobs[5].logprob, 0);
  EXPECT_GE(result.prompt_logprobs[5].top.at(0).logprob, result.prompt_logprobs[5].logprob);
}

TEST_F(TinyEngine, scores_of_an_echo_equal_the_logits) {
  SequenceRequest scoring = request(3, 0);
  scoring.echo_logprobs = true;
  SequenceResult result = run_all(*engine_, {scoring}).front();
  std::vector<float> logits = all_logits(*engine_, scoring.prompt);
  Sampler sampler(320);
  for (size_t i = 1; i < scoring.prompt.size(); ++i) {
    std::span<const float> row(logits.data() + (i - 1) * 320, 320);
    EXPECT_EQ(result.prompt_logprobs[i].logprob, sampler.score(row, scoring.prompt[i], 0).logprob);
  }
}

TEST_F(TinyEngine, a_resumed_answer_that_was_complete_takes_no_step) {
  SequenceRequest asked = request(0, 6);
  SequenceResult whole = run_all(*engine_, {asked}).front();
  uint64_t steps = engine_->stats().steps;
  asked.resumed = whole.tokens;
  SequenceResult again = run_all(*engine_, {asked}).front();
  EXPECT_EQ(again.text, whole.text);
  EXPECT_EQ(again.tokens, whole.tokens);
  EXPECT_EQ(engine_->stats().steps, steps);
}

TEST_F(TinyEngine, a_context_beyond_the_models_own_is_refused) {
  try {
    open_engine(path_, {}, {.ram_bytes = 64 << 20, .context_tokens = 4096});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("512"), std::string::npos) << error.what();
  }
}

TEST_F(TinyEngine, bad_words_are_never_written_whole) {
  SequenceRequest plain = request(0, 12);
  const std::vector<uint32_t> tokens = run_all(*engine_, {plain}).front().tokens;
  ASSERT_EQ(tokens.size(), 12U);
  const auto holds = [](const std::vector<uint32_t>& text, const std::vector<uint32_t>& word) {
    return std::search(text.begin(), text.end(), word.begin(), word.end()) != text.end();
  };
  for (size_t length : {1U, 2U, 3U}) {
    const std::vector<uint32_t> word(
        tokens.begin() + 4, tokens.begin() + 4 + static_cast<ptrdiff_t>(length));
    SequenceRequest barred = plain;
    barred.bad_words = {word};
    const std::vector<uint32_t> found = run_all(*engine_, {barred}).front().tokens;
    EXPECT_TRUE(holds(tokens, word));
    EXPECT_FALSE(holds(found, word)) << length;
    EXPECT_EQ(found[0], length == 1 && tokens[0] == word[0] ? found[0] : tokens[0]);
  }
}

TEST_F(TinyEngine, verified_numerics_name_the_layer_and_spare_the_neighbours) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto errors_with = [&](const std::string& tensor, const std::vector<uint64_t>& dims,
                               bool verify) {
    uint64_t n = 1;
    for (uint64_t dim : dims)
      n *= dim;
    std::vector<float> values(n, 0.01F);
    // Of a matrix only the row of token 7 is broken.
    std::fill_n(values.begin() + (dims.size() > 1 ? 7 * 64 : 0), 64, nan);
    const std::string path = folder_.path(verify ? "verified.gguf" : "broken.gguf");
    make_tiny_llama({}).set_f32_tensor(tensor, dims, values).write(path);
    auto engine = open_engine(
        path, {.math = MathMode::exact, .n_threads = 1},
        {.ram_bytes = 64 << 20, .max_sequences = 4, .verify_numerics = verify});
    SequenceRequest sound = request(0, 1);
    sound.prompt = {5, 6};
    SequenceRequest hit = request(1, 1);
    hit.prompt = {5, 7, 6};
    const auto results = run_all(*engine, {sound, hit});
    return std::pair(results[0].error, results[1].error);
  };
  const std::vector<uint64_t> norm = {64};
  auto [first, second] = errors_with("blk.1.ffn_norm.weight", norm, true);
  EXPECT_NE(second.find("layer 1 of 2 gives NaN or infinity at position 0"), std::string::npos)
      << second;
  EXPECT_EQ(errors_with("blk.0.attn_norm.weight", norm, true).second.find("layer 0 of 2"), 0U);
  second = errors_with("output_norm.weight", norm, true).second;
  EXPECT_NE(second.find("every layer is sound"), std::string::npos) << second;
  std::tie(first, second) = errors_with("token_embd.weight", {64, 320}, true);
  EXPECT_EQ(first, "");
  EXPECT_EQ(second.find("the embedding gives NaN or infinity at position 1"), 0U) << second;
  // Without it the line ends all the same, but nothing names the layer.
  second = errors_with("blk.1.ffn_norm.weight", norm, false).second;
  EXPECT_NE(second.find("NaN"), std::string::npos);
  EXPECT_EQ(second.find("layer"), std::string::npos) << second;
}

TEST_F(TinyEngine, identity_tells_arithmetic_and_kv_type_apart) {
  auto identity = [&](MathMode math, KvType kv) {
    return open_engine(path_, {.math = math}, {.ram_bytes = 64 << 20, .kv_type = kv})->identity();
  };
  EXPECT_NE(identity(MathMode::fast, KvType::f16), identity(MathMode::exact, KvType::f16));
  EXPECT_NE(identity(MathMode::fast, KvType::f16), identity(MathMode::fast, KvType::q8_0));
  EXPECT_EQ(identity(MathMode::fast, KvType::f16), identity(MathMode::fast, KvType::f16));
}

}  // namespace
}  // namespace nightsweep
