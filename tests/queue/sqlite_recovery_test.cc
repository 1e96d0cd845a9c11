// Whose fault a death was: a worker in a child process that dies as a real one does.

#include <random>
#include <set>

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

class RecoveryTest : public QueueTest {
 protected:
  // A worker as runner/worker.cc is one: places for 64, joins at once, saves the first token of
  // what has not been cleared, and dies as soon as a poison takes part. `most_saves`: killed from
  // outside after so many. True: it came to the end of the queue.
  bool work(const std::set<std::string>& poisons, int most_saves = 1'000'000) {
    in_killed_child([&] {
      auto queue = open_worker();
      std::vector<ClaimedJob> in_flight;
      for (int n_saves = 0;;) {
        ClaimOutcome outcome = queue->claim(
            {.n = static_cast<uint32_t>(64 - in_flight.size()), .n_in_flight = in_flight.size()});
        if (outcome.blocked == ClaimOutcome::Blocked::until_empty) {
          std::vector<Claim> claims;
          for (const ClaimedJob& job : in_flight)
            claims.push_back(job.claim);
          queue->release(claims);
          in_flight.clear();
          continue;
        }
        if (outcome.jobs.empty() && in_flight.empty()) return;
        std::vector<Checkpoint> checkpoints;
        std::vector<Completion> done;
        for (const ClaimedJob& job : outcome.jobs) {
          if (poisons.contains(job.custom_id)) ::kill(::getpid(), SIGKILL);
          checkpoints.push_back({job.claim, "m", "token"});
        }
        if (n_saves++ == most_saves) ::kill(::getpid(), SIGKILL);
        queue->save(checkpoints, {});
        // Two in flight are done at each step.
        in_flight.insert(in_flight.end(), outcome.jobs.begin(), outcome.jobs.end());
        for (int i = 0; i < 2 && !in_flight.empty(); ++i) {
          done.push_back({in_flight.front().claim, answer()});
          in_flight.erase(in_flight.begin());
        }
        if (n_saves++ == most_saves) ::kill(::getpid(), SIGKILL);
        queue->save({}, done);
      }
    });
    return open()->n_unfinished(std::nullopt) == 0;
  }

  int deaths_until_done(const std::set<std::string>& poisons) {
    int n_deaths = 0;
    while (!work(poisons) && n_deaths < 100)
      ++n_deaths;
    return n_deaths;
  }
};

TEST_F(RecoveryTest, a_crash_makes_suspects_of_what_had_gained_nothing) {
  { submit(*open(), 5); }
  in_killed_child([&] {
    auto queue = open_worker();
    std::vector<ClaimedJob> moving = queue->claim(2, std::nullopt, std::nullopt);
    queue->claim(2, std::nullopt, std::nullopt);
    queue->save({{moving[0].claim, "m", "tokens"}}, {});
    queue.release();  // no destructor, as by SIGKILL
  });
  auto queue = open_worker();
  // The first was cleared by its token. The second had none, but its group had gained: no strike.
  EXPECT_EQ(
      Sql(path_).rows(
          "SELECT custom_id, state, attempt, strikes, group_limit FROM job ORDER BY id"),
      (std::vector<std::string>{
          "id-1|waiting|1|0|", "id-2|waiting|1|0|1", "id-3|waiting|1|1|1", "id-4|waiting|1|1|1",
          "id-5|waiting|0|0|"}));
  EXPECT_EQ(queue->claim({.n = 5, .n_in_flight = 1}).blocked, ClaimOutcome::Blocked::until_empty);
  std::vector<ClaimedJob> alone = queue->claim(5, std::nullopt, std::nullopt);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_TRUE(alone[0].is_suspect);
  EXPECT_EQ(alone[0].claim.attempt, 2U);
  queue->save({{alone[0].claim, "m", "token"}}, {});
  EXPECT_EQ(
      Sql(path_).one("SELECT strikes || coalesce(group_limit, '-') FROM job WHERE id = 2"), "0-")
      << "a saved token clears it";
  expect_counters_agree(path_);
}

TEST_F(RecoveryTest, suspects_wait_until_those_in_flight_are_proven) {
  { submit(*open(), 5); }
  in_killed_child([&] {
    auto queue = open_worker();
    queue->claim(4, std::nullopt, std::nullopt);
    queue.release();
  });
  auto queue = open_worker();
  EXPECT_EQ(
      queue->claim({.n = 5, .n_in_flight = 1, .has_unproven = true}).blocked,
      ClaimOutcome::Blocked::until_proven);
  EXPECT_EQ(queue->claim({.n = 5, .n_in_flight = 1}).jobs.size(), 2U) << "a half";
}

TEST_F(RecoveryTest, a_reboot_makes_no_suspects) {
  { submit(*open(), 4); }
  in_killed_child([&] {
    auto queue = open_worker();
    queue->claim(4, std::nullopt, std::nullopt);
    queue.release();
  });
  boot_id_ = "boot-2";
  EXPECT_EQ(open_worker()->claim(9, std::nullopt, std::nullopt).size(), 4U);
}

TEST_F(RecoveryTest, one_poison_among_64_is_buried_alone_after_nine_deaths_at_most) {
  for (const char* poison : {"id-1", "id-33", "id-64"}) {
    path_ = folder_ + "/" + poison + ".db";
    std::string batch = submit(*open(), 64);
    int n_deaths = deaths_until_done({poison});
    std::printf("poison %s among 64: %d deaths\n", poison, n_deaths);
    EXPECT_LE(n_deaths, 6 + 3);
    EXPECT_GE(n_deaths, 3);
    auto queue = open();
    EXPECT_EQ(queue->batch(batch)->counts.completed, 63U);
    EXPECT_EQ(
        Sql(path_).rows(
            "SELECT custom_id, status, error_code FROM jobs WHERE status <> 'completed'"),
        std::vector<std::string>{std::string(poison) + "|failed|quarantined"});
    expect_counters_agree(path_);
  }
}

TEST_F(RecoveryTest, two_poisons_are_both_found_and_everybody_else_is_answered) {
  std::string batch = submit(*open(), 64);
  int n_deaths = deaths_until_done({"id-7", "id-50"});
  std::printf("two poisons among 64: %d deaths\n", n_deaths);
  EXPECT_LE(n_deaths, 2 * (6 + 3));
  EXPECT_EQ(open()->batch(batch)->counts.completed, 62U);
  EXPECT_EQ(
      Sql(path_).rows("SELECT custom_id FROM jobs WHERE error_code = 'quarantined' ORDER BY line"),
      (std::vector<std::string>{"id-7", "id-50"}));
  expect_counters_agree(path_);
}

TEST_F(RecoveryTest, the_rest_is_claimed_at_full_size_at_once) {
  submit(*open(), 200);
  deaths_until_done({"id-5"});
  std::string batch = submit(*open(), 64);
  EXPECT_EQ(open_worker()->claim(64, batch, std::nullopt).size(), 64U);
}

TEST_F(RecoveryTest, a_hundred_kills_from_outside_bury_nobody) {
  std::string batch = submit(*open(), 600);
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same moments every time
  int n_kills = 0;
  // From the middle of the first save's work on: a kill before anything was gained is a strike.
  while (n_kills < 100 && !work({}, static_cast<int>(random() % 6)))
    ++n_kills;
  std::printf(
      "%d kills: %s jobs done\n", n_kills, Sql(path_).one("SELECT n_completed FROM batch").c_str());
  EXPECT_EQ(n_kills, 100);
  EXPECT_TRUE(work({}));
  EXPECT_EQ(open()->batch(batch)->counts.completed, 600U);
  expect_counters_agree(path_);
}

}  // namespace
}  // namespace nightsweep
