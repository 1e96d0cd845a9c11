// What was acknowledged stays: processes that are killed at random moments, and random sequences of
// operations beside a model in memory.

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

using SurvivalTest = QueueTest;

constexpr uint32_t kSeed = 20260301;

// What a child writes to a pipe, as far as its end or at least n lines of it.
void read_lines(int fd, size_t n, std::string* text) {
  char buffer[4096];
  while (static_cast<size_t>(std::count(text->begin(), text->end(), '\n')) < n) {
    ssize_t size = ::read(fd, buffer, sizeof buffer);
    if (size <= 0) return;
    text->append(buffer, static_cast<size_t>(size));
  }
}

TEST_F(SurvivalTest, what_was_acknowledged_survives_kill_9) {
  std::mt19937 random(kSeed);
  std::set<std::string> batches;
  std::map<std::string, std::string> answers;  // of jobs, by id
  for (int round = 0; round < 40; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    // Lines that wait in memory, and lines that go in slice by slice.
    most_held_bytes_ = round % 2 == 0 ? QueueOptions{}.most_held_bytes : 0;
    pid_t child = start_child([&] {
      auto acknowledge = [&](const std::string& text) {
        std::string line = text + "\n";
        if (::write(pipe_fds[1], line.data(), line.size()) < 0) ::_exit(1);
      };
      auto queue = open_worker();
      for (int step = 0;; ++step) {
        acknowledge("batch " + submit(*queue, 3));
        std::vector<ClaimedJob> jobs = queue->claim(4, std::nullopt, std::nullopt);
        std::vector<Checkpoint> checkpoints;
        for (const ClaimedJob& job : jobs)
          checkpoints.push_back({job.claim, "m", "tokens"});
        queue->save(checkpoints, {});
        std::vector<Completion> done;
        for (const ClaimedJob& job : jobs) {
          done.push_back({job.claim, answer(format("{} {}", round, step))});
        }
        queue->save({}, done);
        for (const Completion& completion : done) {
          acknowledge(format("job {} {}", completion.claim.job, completion.result.body));
        }
      }
    });
    ::close(pipe_fds[1]);
    std::string text;
    read_lines(pipe_fds[0], std::uniform_int_distribution<size_t>(1, 12)(random), &text);
    ::usleep(std::uniform_int_distribution<useconds_t>(0, 3'000)(random));
    ::kill(child, SIGKILL);
    wait_for(child);
    read_lines(pipe_fds[0], SIZE_MAX, &text);
    std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("batch ")) {
        batches.insert(line.substr(6));
      } else {
        size_t space = line.find(' ', 4);
        std::string job = line.substr(4, space - 4);
        EXPECT_FALSE(answers.contains(job)) << "job " << job << " was answered twice";
        answers[job] = line.substr(space + 1);
      }
    }
    ::close(pipe_fds[0]);
    // Whichever comes first after the kill has to roll the journal back.
    auto queue = open_worker();
    expect_counters_agree(path_);
    EXPECT_EQ(Sql(path_).one("SELECT count(*) FROM batch WHERE is_hidden = 1"), "0");
  }
  auto queue = open();
  for (const std::string& id : batches)
    EXPECT_TRUE(queue->batch(id).has_value()) << id;
  Sql sql(path_);
  for (const auto& [job, body] : answers) {
    EXPECT_EQ(sql.one("SELECT body FROM result WHERE job = " + job), body);
  }
  EXPECT_GE(batches.size(), 40U);
  EXPECT_GE(answers.size(), 40U);
}

// What the queue should hold, in plain containers.
struct ModelJob {
  bool is_refused = false;
  bool is_finished = false;
  bool is_failed = false;
  uint32_t attempt = 0;
  std::optional<Claim> running;
  std::string checkpoint;
};

TEST_F(SurvivalTest, random_operations_agree_with_a_model_in_memory) {
  for (uint32_t seed = kSeed; seed < kSeed + 3; ++seed) {
    SCOPED_TRACE(format("seed {}", seed));
    path_ = format("{}/{}.db", folder_, seed);
    std::mt19937 random(seed);
    auto up_to = [&](uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n)(random); };
    std::map<int64_t, ModelJob> model;
    std::map<int64_t, int32_t> priorities;
    std::map<int64_t, int> batch_of;
    int n_batches = 0;
    std::vector<Claim> stale;
    int64_t last_job = 0;
    auto queue = open_worker();

    auto running = [&] {
      std::vector<Claim> claims;
      for (const auto& [id, job] : model) {
        if (job.running && up_to(2) != 0) claims.push_back(*job.running);
      }
      return claims;
    };
    for (int step = 0; step < 300; ++step) {
      now_ms_ += 10;
      switch (up_to(6)) {
        case 0: {
          auto writer = queue->new_batch();
          NewBatch settings = of_priority(static_cast<int32_t>(up_to(2)));
          for (uint64_t line = 1; line <= 1 + up_to(8); ++line) {
            ModelJob& added = model[++last_job];
            priorities[last_job] = settings.priority;
            batch_of[last_job] = n_batches;
            if (up_to(4) == 0) {
              add(*writer, {job(line), refusal()});
              added.is_refused = added.is_finished = added.is_failed = true;
            } else {
              add(*writer, {job(line), {}});
            }
          }
          bool existed = false;
          writer->commit(settings, &existed);
          ++n_batches;
          break;
        }
        case 1:
        case 2: {
          uint32_t n = up_to(6);
          std::vector<int64_t> waiting;  // by priority, then line
          for (const auto& [id, job] : model) {
            if (!job.is_finished && !job.running) waiting.push_back(id);
          }
          std::stable_sort(waiting.begin(), waiting.end(), [&](int64_t a, int64_t b) {
            return priorities[a] > priorities[b];
          });
          std::multiset<int32_t> levels;
          std::map<int, int64_t> last_of;
          for (const ClaimedJob& job : queue->claim(n, std::nullopt, std::nullopt)) {
            int64_t id = job.claim.job;
            EXPECT_EQ(std::count(waiting.begin(), waiting.end(), id), 1) << "it waits";
            EXPECT_GT(id, std::exchange(last_of[batch_of[id]], id)) << "by line in a batch";
            levels.insert(priorities[id]);
            ModelJob& entry = model[id];
            EXPECT_EQ(job.claim.attempt, ++entry.attempt);
            EXPECT_EQ(job.checkpoint, entry.checkpoint);
            entry.running = job.claim;
          }
          if (waiting.size() > n) waiting.resize(n);
          std::multiset<int32_t> expected_levels;
          for (int64_t id : waiting)
            expected_levels.insert(priorities[id]);
          EXPECT_EQ(levels, expected_levels);
          break;
        }
        case 3: {
          std::vector<Checkpoint> checkpoints;
          for (const Claim& claim : running()) {
            checkpoints.push_back({claim, "m", format("step {}", step)});
            model[claim.job].checkpoint = checkpoints.back().data;
          }
          EXPECT_TRUE(queue->save(checkpoints, {}).empty());
          break;
        }
        case 4: {
          std::vector<Completion> done;
          for (const Claim& claim : running()) {
            ModelJob& entry = model[claim.job];
            entry.is_failed = up_to(3) == 0;
            done.push_back({claim, entry.is_failed ? refusal() : answer()});
            entry.is_finished = true;
            entry.running.reset();
            stale.push_back(claim);
          }
          EXPECT_TRUE(queue->save({}, done).empty());
          break;
        }
        case 5: {
          std::vector<Claim> claims = running();
          for (const Claim& claim : claims) {
            model[claim.job].running.reset();
            --model[claim.job].attempt;
            stale.push_back(claim);
          }
          queue->release(claims);
          break;
        }
        case 6:
          if (up_to(3) == 0) {  // an orderly end and a new worker; its groups count from 1 again
            queue.reset();
            queue = open_worker();
            for (auto& [id, job] : model) {
              if (job.running) --job.attempt;
              job.running.reset();
            }
            stale.clear();
          } else if (!stale.empty()) {
            EXPECT_EQ(queue->save({}, {{stale.back(), answer()}}).size(), 1U);
          }
          break;
      }
    }
    expect_counters_agree(path_);
    Sql sql(path_);
    auto count = [&](auto&& wanted) {
      return std::to_string(std::count_if(
          model.begin(), model.end(), [&](const auto& entry) { return wanted(entry.second); }));
    };
    EXPECT_EQ(sql.one("SELECT count(*) FROM job"), count([](const ModelJob&) { return true; }));
    EXPECT_EQ(sql.one("SELECT count(*) FROM result"), count([](const ModelJob& job) {
                return job.is_finished;
              }));
    EXPECT_EQ(sql.one("SELECT sum(n_failed) FROM batch"), count([](const ModelJob& job) {
                return job.is_failed;
              }));
    EXPECT_EQ(sql.one("SELECT sum(n_running) FROM batch"), count([](const ModelJob& job) {
                return job.running.has_value();
              }));
  }
}

}  // namespace
}  // namespace nightsweep
