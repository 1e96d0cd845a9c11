// Real processes are killed at random moments; what they acknowledged is there afterwards.
//
// NIGHTSWEEP_KILLS=500 for the figure of the README; else a short run.

#include <sqlite3.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "base/json.h"
#include "support/program.h"

namespace nightsweep {
namespace {

class Kills : public ProgramTest {
 protected:
  std::vector<std::string> sql(const std::string& statement) {
    sqlite3* handle = nullptr;
    std::vector<std::string> rows;
    sqlite3_open(folder_.path("queue.db").c_str(), &handle);
    sqlite3_busy_timeout(handle, 10'000);
    auto append = [](void* out, int n, char** values, char**) {
      std::string row;
      for (int i = 0; i < n; ++i)
        row += std::string(i > 0 ? "|" : "") + (values[i] != nullptr ? values[i] : "");
      static_cast<std::vector<std::string>*>(out)->push_back(row);
      return 0;
    };
    char* error = nullptr;
    if (sqlite3_exec(handle, statement.c_str(), append, &rows, &error) != SQLITE_OK) {
      rows = {std::string("error: ") + error};
    }
    sqlite3_free(error);
    sqlite3_close(handle);
    return rows;
  }

  void expect_sound() {
    EXPECT_EQ(sql("PRAGMA integrity_check"), std::vector<std::string>{"ok"});
    EXPECT_EQ(
        sql("SELECT count(*) FROM batch WHERE is_hidden = 0 AND ("
            " n_total <> (SELECT count(*) FROM job WHERE batch = batch.id)"
            " OR n_running <> (SELECT count(*) FROM job WHERE batch = batch.id AND state = "
            "'running')"
            " OR n_completed <> (SELECT count(*) FROM job WHERE batch = batch.id AND state ="
            " 'completed') OR n_failed <> (SELECT count(*) FROM job WHERE batch = batch.id AND "
            "state"
            " IN ('failed', 'cancelled', 'expired')))"),
        std::vector<std::string>{"0"});
    EXPECT_EQ(
        sql("SELECT count(*) FROM job LEFT JOIN result ON result.job = job.id JOIN batch ON "
            "batch.id"
            " = job.batch WHERE is_hidden = 0 AND (result.job IS NULL) <> (state IN ('waiting',"
            " 'running'))"),
        std::vector<std::string>{"0"});
  }
};

TEST_F(Kills, of_every_command_lose_nothing_and_answer_nothing_twice) {
  const char* named = std::getenv("NIGHTSWEEP_KILLS");
  int wanted = named != nullptr ? static_cast<int>(std::strtol(named, nullptr, 10)) : 15;
  std::mt19937 random(9);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same moments every time
  std::string in = write_file("in.jsonl", lines(8, 60));
  std::set<std::string> submitted;  // acknowledged: the id was printed
  std::set<std::string> cancelled;
  std::set<std::string> pruned;
  std::map<std::string, std::string> answers;  // job and line of output, as first seen
  std::map<std::string, int> n_kills;
  auto any_of = [&](const std::set<std::string>& ids) {
    return *std::next(ids.begin(), static_cast<std::ptrdiff_t>(random() % ids.size()));
  };
  // The worker runs beside the others, and is killed now and then.
  std::vector<std::string> work = {"worker", "--batch", "4"};
  pid_t worker = start(work, folder_.path("worker.out"));
  int n_all = 0;
  while (n_all < wanted && !HasFailure()) {
    std::vector<std::string> words = {"submit", in, "--model", model()};
    std::string target;
    unsigned choice = random() % 5;
    std::set<std::string> ended;
    for (const std::string& id : cancelled) {
      if (!pruned.contains(id)) ended.insert(id);
    }
    if (choice == 1) {
      ::kill(worker, SIGKILL);
      if (wait_for(worker) == 128 + SIGKILL) {
        ++n_kills["worker"];
        ++n_all;
      }
      expect_sound();
      worker = start(work, folder_.path("worker.out"));
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
      continue;
    }
    if (choice == 2 && !submitted.empty()) {
      words = {"results", target = any_of(submitted)};
    } else if (choice == 3 && !submitted.empty()) {
      words = {"cancel", target = any_of(submitted)};
    } else if (choice == 4 && !ended.empty()) {
      words = {"prune", target = any_of(ended)};
    }
    pid_t child = start(words, folder_.path("out"));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 90'000));
    ::kill(child, SIGKILL);
    int code = wait_for(child);
    if (code == 128 + SIGKILL) {
      ++n_kills[words[0]];
      ++n_all;
    }
    std::string out = read(folder_.path("out"));
    if (words[0] == "submit" && out.ends_with('\n')) {
      submitted.insert(out.substr(0, out.size() - 1));
    } else if (words[0] == "cancel" && code == 0) {
      cancelled.insert(target);
    } else if (words[0] == "prune" && code == 0) {
      pruned.insert(target);
    } else if (words[0] == "results") {
      std::istringstream whole_lines(out.substr(0, out.rfind('\n') + 1));
      for (std::string line; std::getline(whole_lines, line);) {
        std::string job = Json::parse(line).find("id")->as_string();
        auto [known, is_new] = answers.emplace(job, line);
        EXPECT_EQ(known->second, line) << "an answer that was shown has changed";
      }
    }
  }
  ::kill(worker, SIGKILL);
  wait_for(worker);
  Outcome drained = run({"worker", "--drain"});
  EXPECT_EQ(drained.code, 0) << drained.err;
  expect_sound();
  for (const std::string& id : submitted) {
    std::vector<std::string> rows =
        sql(format("SELECT total, completed + failed, status FROM batches WHERE id = '{}'", id));
    if (pruned.contains(id)) {
      EXPECT_TRUE(rows.empty()) << id;
    } else if (rows.empty()) {
      // A prune that was killed may have come far enough.
      EXPECT_TRUE(cancelled.contains(id)) << "lost: " << id;
    } else {
      EXPECT_TRUE(rows[0].starts_with("8|8|")) << id << ": " << rows[0];
      if (!cancelled.contains(id)) continue;
      EXPECT_TRUE(rows[0] == "8|8|cancelled" || rows[0] == "8|8|completed") << rows[0];
    }
  }
  EXPECT_EQ(
      sql("SELECT count(*) FROM result WHERE error_code = 'quarantined'"),
      std::vector<std::string>{"0"})
      << "nobody is buried for kills from outside";
  std::string text;
  for (const auto& [command, n] : n_kills)
    text += format("{}{} {}", text.empty() ? "" : ", ", command, n);
  std::printf(
      "%d kills (%s) over %zu batches: nothing lost, nothing twice, integrity ok\n", n_all,
      text.c_str(), submitted.size());
}

TEST_F(Kills, of_a_long_submit_leave_lines_that_nobody_sees_and_the_next_one_removes) {
  constexpr int kLines = 45'000;  // more than wait in memory
  std::string text;
  for (int line = 1; line <= kLines; ++line)
    text += format("{{\"prompt\":\"{:100}\"}}\n", line);
  std::string in = write_file("long.jsonl", text);
  pid_t child = start({"submit", in}, folder_.path("out"));
  while (::kill(child, 0) == 0 &&
         sql("SELECT count(*) FROM batch WHERE is_hidden = 1") != std::vector<std::string>{"1"} &&
         ::waitpid(child, nullptr, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(child, SIGKILL);
  ASSERT_EQ(wait_for(child), 128 + SIGKILL) << "it was done before it was killed";
  expect_sound();
  EXPECT_EQ(run({"status", "--json"}).out.find("long.jsonl"), std::string::npos);
  EXPECT_EQ(run({"submit", in}).code, 0);
  EXPECT_EQ(sql("SELECT count(*) FROM batch"), std::vector<std::string>{"1"});
  EXPECT_EQ(sql("SELECT count(*) FROM job"), std::vector<std::string>{std::to_string(kLines)});
  expect_sound();
}

}  // namespace
}  // namespace nightsweep
