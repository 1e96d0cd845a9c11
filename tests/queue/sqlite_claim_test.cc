// Who comes next.

#include <algorithm>
#include <map>

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

using ClaimTest = QueueTest;

std::map<std::string, int> count_by_batch(const std::vector<ClaimedJob>& jobs) {
  std::map<std::string, int> counts;
  for (const ClaimedJob& job : jobs)
    ++counts[job.batch];
  return counts;
}

TEST_F(ClaimTest, equals_share_and_a_big_batch_starves_nobody) {
  auto queue = open_worker();
  std::string big = submit(*queue, 500);
  EXPECT_EQ(queue->claim(16, std::nullopt, std::nullopt).size(), 16U);
  now_ms_ += 1000;
  std::string small = submit(*queue, 5);
  // The big one has 16 places already.
  EXPECT_EQ(
      count_by_batch(queue->claim(8, std::nullopt, std::nullopt)),
      (std::map<std::string, int>{{small, 5}, {big, 3}}));
  std::string third = submit(*queue, 100);
  EXPECT_EQ(
      count_by_batch(queue->claim(8, std::nullopt, std::nullopt)),
      (std::map<std::string, int>{{third, 8}}));
}

TEST_F(ClaimTest, what_waits_long_enough_goes_before_higher_priority) {
  auto queue = open_worker();
  std::string low = submit(*queue, 100);
  std::string high = submit(*queue, 100, of_priority(2));
  EXPECT_EQ(
      count_by_batch(queue->claim(4, std::nullopt, std::nullopt)),
      (std::map<std::string, int>{{high, 4}}));
  // The high one is served all the time; the low one gains a level each ten minutes.
  int n_claims = 0;
  std::map<std::string, int> counts;
  while (!counts.contains(low) && n_claims < 100) {
    now_ms_ += 60'000;
    ++n_claims;
    counts = count_by_batch(queue->claim(1, std::nullopt, std::nullopt));
  }
  EXPECT_EQ(n_claims, 20) << "minutes";
  now_ms_ += 60'000;
  EXPECT_TRUE(count_by_batch(queue->claim(1, std::nullopt, std::nullopt)).contains(high))
      << "once served it waits again";
  expect_counters_agree(path_);
}

TEST_F(ClaimTest, a_clock_that_was_set_back_changes_no_order) {
  auto queue = open_worker();
  submit(*queue, 10);
  std::string high = submit(*queue, 10, of_priority(1));
  now_ms_ -= 24 * 3'600'000;
  EXPECT_TRUE(count_by_batch(queue->claim(1, std::nullopt, std::nullopt)).contains(high));
}

TEST_F(ClaimTest, priority_can_be_changed_while_jobs_wait) {
  auto queue = open_worker();
  submit(*queue, 10);
  std::string second = submit(*queue, 10);
  Sql(path_).rows(format("UPDATE batches SET priority = 5 WHERE id = '{}'", second));
  EXPECT_EQ(
      count_by_batch(queue->claim(4, std::nullopt, std::nullopt)),
      (std::map<std::string, int>{{second, 4}}));
}

TEST_F(ClaimTest, of_a_batch_the_longest_go_first_and_equals_by_line) {
  auto queue = open_worker();
  const auto submit_lengths = [&](const std::vector<uint64_t>& lengths, int32_t priority) {
    auto writer = queue->new_batch();
    for (size_t i = 0; i < lengths.size(); ++i) {
      NewJob added = job(i + 1);
      added.expected_tokens = lengths[i];
      add(*writer, {.job = added, .refusal = {}});
    }
    bool existed = false;
    return writer->commit(of_priority(priority), &existed);
  };
  submit_lengths({10, 500, 63, 70, 501, 4000}, 0);
  submit_lengths({1, 2}, 1);
  std::vector<uint64_t> lines;
  for (const ClaimedJob& claimed : queue->claim(8, std::nullopt, std::nullopt))
    lines.push_back(claimed.line);
  // Priority before length; less than a unit of 64 tokens is no difference.
  EXPECT_EQ(lines, (std::vector<uint64_t>{1, 2, 6, 2, 5, 4, 1, 3}));
}

TEST_F(ClaimTest, what_waits_is_shown_by_batch_and_model_unless_it_is_too_much) {
  auto queue = open_worker();
  const std::string a = submit(*queue, 3, {}, "a");
  submit(*queue, 2, {}, "b");
  std::vector<WaitingRequest> shown;
  const auto show = [&](const std::string& batch, const std::string& model, uint32_t most) {
    shown.clear();
    return queue->each_waiting(
        batch, model, most, [&](const WaitingRequest& request) { shown.push_back(request); });
  };
  EXPECT_TRUE(show(a, "a", 3));
  EXPECT_EQ(shown.size(), 3U);
  EXPECT_FALSE(show(a, "a", 2));
  EXPECT_TRUE(shown.empty());
  EXPECT_TRUE(show(a, "b", 3));
  EXPECT_TRUE(shown.empty());
  EXPECT_TRUE(show("batch_unknown", "a", 3));
  EXPECT_TRUE(shown.empty());
  const auto claimed = queue->claim(1, a, std::nullopt);
  ASSERT_EQ(claimed.size(), 1U);
  EXPECT_TRUE(show(a, "a", 2));
  EXPECT_EQ(shown.size(), 2U);
  // As they were submitted.
  queue->release({claimed[0].claim});
  EXPECT_TRUE(show(a, "a", 3));
  EXPECT_TRUE(std::any_of(shown.begin(), shown.end(), [&](const WaitingRequest& request) {
    return request.request == claimed[0].request && request.submitted_ms == claimed[0].submitted_ms;
  }));
}

TEST_F(ClaimTest, several_names_of_a_model_are_claimed_together) {
  auto queue = open_worker();
  std::string a = submit(*queue, 3, {}, "a");
  std::string b = submit(*queue, 3, {}, "b");
  submit(*queue, 3, {}, "c");
  ClaimRequest request{.n = 4, .models = {"a", "b"}};
  EXPECT_EQ(
      count_by_batch(queue->claim(request).jobs), (std::map<std::string, int>{{a, 2}, {b, 2}}));
}

}  // namespace
}  // namespace nightsweep
