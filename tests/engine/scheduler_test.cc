// Which rows make a step, without a model: what a step computes is pushed by hand.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

namespace nightsweep {
namespace {

constexpr uint32_t kPage = kKvPageTokens;

class Schedules : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder_.path("tiny.gguf");
    write_tiny_llama(path, {});
    tokenizer_ = Tokenizer::from_gguf(*open_gguf(path));
  }

  void open(uint32_t n_pages, Scheduler::Limits limits) {
    scheduler_.reset();
    cache_ = std::make_unique<KvCache>(
        *device_, KvShape{.type = KvType::f16, .n_kv_heads = 1, .head_dim = 32}, 1, n_pages);
    scheduler_ = std::make_unique<Scheduler>(*cache_, limits);
  }
  static Scheduler::Limits limits(uint32_t max_rows, uint32_t max_sequences = 8) {
    return {
        .max_sequences = max_sequences,
        .step = {.max_rows = max_rows, .max_logit_rows = max_rows},
        .context_tokens = 4096};
  }

  void add(
      uint64_t handle,
      std::vector<uint32_t> prompt,
      uint64_t max_tokens = 8,
      bool echo_logprobs = false) {
    SequenceRequest request;
    request.handle = handle;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.echo_logprobs = echo_logprobs;
    scheduler_->add(std::make_unique<Sequence>(
        std::move(request), AnswerText(*tokenizer_, {.max_tokens = max_tokens}), *cache_));
  }

  // (handle, first, n) of each chunk.
  struct Rows {
    uint64_t handle;
    uint64_t first;
    uint32_t n;
    bool operator==(const Rows&) const = default;
  };
  std::vector<Rows> next() {
    step_.clear();
    std::vector<std::unique_ptr<Sequence>> hopeless;
    chunks_ = scheduler_->next_step(step_, hopeless);
    EXPECT_TRUE(hopeless.empty());
    std::vector<Rows> rows;
    for (const Chunk& chunk : chunks_)
      rows.push_back({chunk.sequence->request.handle, chunk.first, chunk.n});
    return rows;
  }
  // The step has been computed: every sequence whose tokens are all cached gets another one.
  void done() {
    for (const Chunk& chunk : chunks_) {
      Sequence& sequence = *chunk.sequence;
      for (uint64_t at = chunk.first; at < chunk.first + chunk.n; ++at) {
        if (sequence.request.echo_logprobs && at + 1 < sequence.request.prompt.size()) {
          if (sequence.prompt_logprobs.empty()) sequence.prompt_logprobs.push_back({});
          sequence.prompt_logprobs.push_back({});
        }
      }
      sequence.n_cached = chunk.first + chunk.n;
      if (sequence.n_pending() > 0) continue;
      if (sequence.answer.push('a') != FinishReason::none) scheduler_->remove(&sequence);
    }
  }
  std::vector<Rows> run() {
    std::vector<Rows> rows = next();
    done();
    return rows;
  }

  static std::vector<uint32_t> joined(
      std::vector<uint32_t> head,
      const std::vector<uint32_t>& tail) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  }
  const std::vector<uint32_t> head_ = random_tokens(size_t{3} * kPage, 320, 7);
  std::vector<uint32_t> with_head(uint64_t seed, size_t n = 10) {
    return joined(head_, random_tokens(n, 320, seed));
  }

  TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Device> device_ = make_cpu_device({.n_threads = 1});
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  Step step_;
  std::vector<Chunk> chunks_;
};

TEST_F(Schedules, decode_rows_come_first_and_prompts_fill_the_rest) {
  open(64, limits(20));
  add(1, random_tokens(5, 320, 1));
  add(2, random_tokens(5, 320, 2));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 5}, {2, 0, 5}}));
  add(3, random_tokens(40, 320, 3));
  add(4, random_tokens(40, 320, 4));
  // 3 does not take the row of 2, although it asks for more than there is.
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 5, 1}, {2, 5, 1}, {3, 0, 18}}));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 6, 1}, {2, 6, 1}, {3, 18, 18}}));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 7, 1}, {2, 7, 1}, {3, 36, 4}, {4, 0, 14}}));
}

TEST_F(Schedules, beside_answers_prompts_take_no_more_rows_than_are_free) {
  const uint32_t most = 3000;
  const auto prompts_beside = [&](uint32_t rows, bool has_answers) {
    open(128, limits(most));
    if (has_answers) add(1, random_tokens(5, 320, 1));
    if (has_answers) run();
    add(2, random_tokens(2000, 320, 2));
    if (rows > 0) scheduler_->set_rows_beside_answers(rows);
    return next().back().n;
  };
  EXPECT_EQ(prompts_beside(0, true), 2000U);
  EXPECT_EQ(prompts_beside(700, true), 699U);
  EXPECT_EQ(prompts_beside(3, true), 512U) << "a few are cheap in any case";
  EXPECT_EQ(prompts_beside(700, false), 2000U) << "nobody waits for them";
}

TEST_F(Schedules, an_equal_beginning_is_computed_once_and_shared_in_the_same_step) {
  open(64, limits(1000));
  add(1, with_head(1));
  add(2, with_head(2));
  add(3, random_tokens(30, 320, 3));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 202}, {2, 192, 10}, {3, 0, 30}}));
  EXPECT_EQ(scheduler_->n_shared_tokens(), 192U);
  // 4 pages of the first, one more of the second, one of the third.
  EXPECT_EQ(cache_->n_free(), 64U - 6U);
  // Who comes later shares as well, and the first may go.
  scheduler_->remove(uint64_t{1});
  add(4, with_head(4));
  EXPECT_EQ(run(), (std::vector<Rows>{{2, 202, 1}, {3, 30, 1}, {4, 192, 10}}));
  // The last token of a prompt is computed, in a copy of its page: it gives the next token.
  add(5, head_);
  EXPECT_EQ(run().back(), (Rows{5, 191, 1}));
}

TEST_F(Schedules, nothing_is_shared_where_that_is_asked_for) {
  Scheduler::Limits own = limits(1000);
  own.shares_prefixes = false;
  open(64, own);
  add(1, with_head(1));
  add(2, with_head(2));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 202}, {2, 0, 202}}));
}

TEST_F(Schedules, who_scores_its_prompt_computes_it_and_others_may_share_that) {
  open(64, limits(1000));
  add(1, with_head(1));
  add(2, with_head(2), 8, true);
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 202}, {2, 0, 202}}));
  open(64, limits(1000));
  add(1, with_head(1), 8, true);
  add(2, with_head(2));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 202}, {2, 192, 10}}));
}

TEST_F(Schedules, a_page_that_another_has_begun_is_waited_for) {
  // Logits stop the first one within its second page; rows would be left.
  Scheduler::Limits few_logits = limits(1000);
  few_logits.step.max_logit_rows = 100;
  open(64, few_logits);
  add(1, with_head(1), 8, true);
  add(2, with_head(2));
  add(3, random_tokens(30, 320, 3));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 100}, {3, 0, 29}}));
  // The first has a few rows to go, and its three whole pages are done.
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 100, 99}, {2, 192, 9}, {3, 29, 1}}));

  open(64, few_logits);
  add(1, with_head(1), 8, true);
  add(2, with_head(2));
  next();
  done();
  // The one it waits for goes: it goes on by itself, behind what was done.
  scheduler_->remove(uint64_t{1});
  EXPECT_EQ(run(), (std::vector<Rows>{{2, 100, 102}}));
}

TEST_F(Schedules, a_beginning_shorter_than_a_page_is_copied_once_it_is_there) {
  open(64, limits(1000));
  const std::vector<uint32_t> head = random_tokens(50, 320, 7);
  add(1, joined(head, random_tokens(40, 320, 1)));
  add(2, joined(head, random_tokens(5, 320, 2)));
  add(3, random_tokens(30, 320, 3));
  // Copies come before the rows of a step, so the second one waits for it.
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 90}, {3, 0, 30}}));
  add(4, joined(head, random_tokens(50, 320, 4)));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 90, 1}, {2, 50, 5}, {3, 30, 1}, {4, 50, 50}}));
  EXPECT_EQ(scheduler_->n_shared_tokens(), 100U);
  // Each has pages of its own: two, one, one and two.
  EXPECT_EQ(cache_->n_free(), 64U - 6U);
  // The beginning of a prompt that is not whole yet, and of a page that goes on otherwise.
  add(5, joined(head, random_tokens(3, 320, 2)));
  EXPECT_EQ(run().back(), (Rows{5, 52, 1}));
}

TEST_F(Schedules, a_few_equal_tokens_are_not_waited_for_and_not_copied) {
  open(64, limits(1000));
  const std::vector<uint32_t> head = random_tokens(7, 320, 7);
  add(1, joined(head, random_tokens(40, 320, 1)));
  add(2, joined(head, random_tokens(40, 320, 2)));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 47}, {2, 0, 47}}));
  add(3, joined(head, random_tokens(40, 320, 3)));
  EXPECT_EQ(run().back(), (Rows{3, 0, 47}));
  EXPECT_EQ(scheduler_->n_shared_tokens(), 0U);
}

TEST_F(Schedules, who_gets_no_rows_takes_no_page_for_a_copy) {
  open(64, limits(40));
  const std::vector<uint32_t> head = random_tokens(30, 320, 7);
  add(1, joined(head, random_tokens(5, 320, 1)));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 35}}));
  add(2, random_tokens(100, 320, 2));
  add(3, joined(head, random_tokens(5, 320, 3)));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 35, 1}, {2, 0, 39}}));
  EXPECT_EQ(cache_->n_free(), 62U);
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 36, 1}, {2, 39, 39}}));
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 37, 1}, {2, 78, 22}, {3, 30, 5}}));
}

// The only free page is the source, and the youngest holds the others.
TEST_F(Schedules, the_last_free_page_is_taken_and_nobody_is_evicted_for_a_copy) {
  Scheduler::Limits few_logits = limits(1000);
  few_logits.step.max_logit_rows = 10;
  open(3, few_logits);
  for (int i = 0; i < 200; ++i)
    scheduler_->note_answer_length(1);
  const std::vector<uint32_t> head = random_tokens(40, 320, 7);
  add(1, joined(head, random_tokens(5, 320, 1)), 8, true);
  add(2, joined(head, random_tokens(5, 320, 2)));
  add(3, random_tokens(63, 320, 3), 100);
  EXPECT_EQ(run(), (std::vector<Rows>{{1, 0, 10}, {3, 0, 62}}));
  for (int i = 0; i < 3; ++i)
    run();
  EXPECT_EQ(cache_->n_free(), 0U);
  scheduler_->remove(uint64_t{1});
  EXPECT_EQ(run(), (std::vector<Rows>{{2, 0, 45}, {3, 65, 1}}));
  EXPECT_EQ(scheduler_->n_evictions(), 0U);
  EXPECT_EQ(scheduler_->n_shared_tokens(), 0U);
}

TEST_F(Schedules, shared_pages_count_once_at_admission) {
  // Three pages in common, one each for the rest: 3 + 5 of 8, where 4 each would let two in.
  open(8, limits(1000));
  for (uint64_t handle = 1; handle <= 6; ++handle)
    add(handle, with_head(handle));
  EXPECT_EQ(run().size(), 5U);
  EXPECT_EQ(cache_->n_free(), 0U);
  EXPECT_EQ(scheduler_->n_running(), 5U);
  scheduler_->remove(uint64_t{1});
  EXPECT_EQ(run().size(), 5U);
  EXPECT_EQ(scheduler_->n_evictions(), 0U);

  Scheduler::Limits own = limits(1000);
  own.shares_prefixes = false;
  open(8, own);
  for (uint64_t handle = 1; handle <= 6; ++handle)
    add(handle, with_head(handle));
  EXPECT_EQ(run().size(), 2U);
}

TEST_F(Schedules, pages_keep_what_they_hold_until_they_are_taken) {
  open(8, limits(1000));
  add(1, with_head(1));
  run();
  scheduler_->remove(uint64_t{1});
  EXPECT_EQ(cache_->n_free(), 8U);
  // Of the eight pages those go first that hold nothing whole.
  add(2, random_tokens(200, 320, 9));
  run();
  add(3, with_head(3));
  EXPECT_EQ(run().back(), (Rows{3, 192, 10}));
  scheduler_->remove(uint64_t{2});
  scheduler_->remove(uint64_t{3});
  // All of them: nothing is left of the prefix.
  add(4, random_tokens(500, 320, 10));
  run();
  scheduler_->remove(uint64_t{4});
  add(5, with_head(5));
  EXPECT_EQ(run(), (std::vector<Rows>{{5, 0, 202}}));
}

// Prompt and answer of 192 tokens fill three pages with 191 of them: nothing attends to the last.
TEST_F(Schedules, the_last_token_of_an_answer_needs_no_place) {
  open(6, limits(1000));
  add(1, random_tokens(129, 320, 1), 64);
  add(2, random_tokens(129, 320, 2), 64);
  EXPECT_EQ(run().size(), 2U) << "both are admitted";
  for (int i = 0; i < 62; ++i)
    EXPECT_EQ(run().size(), 2U) << i;
  EXPECT_EQ(scheduler_->n_evictions(), 0U);
}

TEST_F(Schedules, answers_are_shared_as_well) {
  open(64, limits(1000));
  add(1, random_tokens(60, 320, 1), 100);
  for (int i = 0; i < 10; ++i)
    run();
  // The next turn of the same talk begins with prompt and answer.
  std::vector<uint32_t> turn = random_tokens(60, 320, 1);
  turn.resize(69, 'a');
  add(2, turn);
  EXPECT_EQ(run().back(), (Rows{2, 64, 5}));
}

}  // namespace
}  // namespace nightsweep
