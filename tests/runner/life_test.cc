// The life of a batch, and of a worker that is left alone, through the program itself.

#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "support/notify_socket.h"
#include "support/program.h"
#include "support/sanitizer.h"

namespace nightsweep {
namespace {

class Life : public ProgramTest {
 protected:
  Life() {
    TinyModelOptions options;
    options.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    options.context_tokens = 32'768;  // room for answers without an end
    write_tiny_llama(model(), options);
  }

  std::string submit(const std::string& text, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"submit", write_file("in.jsonl", text), "--model", model()};
    words.insert(words.end(), more.begin(), more.end());
    Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out.substr(0, outcome.out.find('\n'));
  }
  Json status(const std::string& batch) {
    return Json::parse(run({"status", batch, "--json"}).out).find("batches")->as_array().at(0);
  }
  std::string state_of(const std::string& batch) {
    return status(batch).find("status")->as_string();
  }
  int64_t count(const std::string& batch, const char* name) {
    return status(batch).find("request_counts")->find(name)->as_integer();
  }
  // As with the sqlite3 shell.
  std::string sql(const std::string& statement) {
    sqlite3* handle = nullptr;
    std::string text;
    sqlite3_open(folder_.path("queue.db").c_str(), &handle);
    sqlite3_busy_timeout(handle, 5000);
    auto append = [](void* out, int n, char** values, char**) {
      for (int i = 0; i < n; ++i)
        *static_cast<std::string*>(out) += std::string(values[i] ? values[i] : "") + "|";
      return 0;
    };
    char* error = nullptr;
    if (sqlite3_exec(handle, statement.c_str(), append, &text, &error) != SQLITE_OK) text = error;
    sqlite3_free(error);
    sqlite3_close(handle);
    return text;
  }
  std::string endless() const { return lines(64, 20'000); }
  // Lines with ids p-0, p-1, ...
  static std::string named_lines(int n, int tokens) {
    std::string text;
    for (int i = 0; i < n; ++i) {
      text += format(
          "{{\"id\":\"p-{}\",\"prompt\":\"line {}\",\"seed\":{},\"max_tokens\":{},"
          "\"ignore_eos\":true}}\n",
          i, i, i, tokens);
    }
    return text;
  }
  pid_t start_worker(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"worker", "--batch", "8"};
    words.insert(words.end(), more.begin(), more.end());
    return start(words, folder_.path("worker.out"));
  }
  void end_worker(pid_t worker) {
    auto begun = std::chrono::steady_clock::now();
    ::kill(worker, SIGTERM);
    EXPECT_EQ(wait_for(worker), 0);
    std::printf(
        "SIGTERM: saved and out after %.2f s\n",
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  }
};

TEST_F(Life, a_poison_among_64_is_found_and_everybody_else_is_answered) {
  std::string batch = submit(named_lines(64, 40));
  int n_deaths = 0;
  while (run({"worker", "--drain"}, "poison:p-37").code == 128 + SIGKILL && n_deaths < 30)
    ++n_deaths;
  std::printf("a poison among 64: %d deaths\n", n_deaths);
  EXPECT_LE(n_deaths, 6 + 3);
  EXPECT_EQ(count(batch, "completed"), 63);
  EXPECT_EQ(count(batch, "failed"), 1);
  Outcome results = run({"results", batch});
  EXPECT_EQ(results.code, 1);
  EXPECT_NE(results.out.find("\"code\":\"quarantined\""), std::string::npos);
  // A retry gives it another chance, and without the fault it is an answer like all others.
  ASSERT_EQ(run({"retry", batch}).code, 0);
  EXPECT_EQ(run({"worker", "--drain"}).code, 0);
  EXPECT_EQ(run({"results", batch}).code, 0);
}

TEST_F(Life, two_poisons_are_both_found) {
  std::string batch = submit(named_lines(64, 20));
  int n_deaths = 0;
  while (run({"worker", "--drain"}, "poison:p-3;poison:p-40").code == 128 + SIGKILL &&
         n_deaths < 40) {
    ++n_deaths;
  }
  std::printf("two poisons among 64: %d deaths\n", n_deaths);
  EXPECT_LE(n_deaths, 2 * (6 + 3));
  EXPECT_EQ(count(batch, "completed"), 62);
}

TEST_F(Life, a_cancel_stops_what_runs_and_keeps_what_is_answered) {
  std::string batch =
      submit(endless() + "{\"prompt\":\"short\",\"max_tokens\":1}\n", {"--priority", "3"});
  std::string short_one = submit(lines(2, 2), {"--priority", "5"});
  pid_t worker = start_worker({"--model", model()});
  EXPECT_TRUE(wait_until([&] { return status(batch).find("running")->as_integer() > 0; }));
  EXPECT_EQ(state_of(batch), "in_progress");
  EXPECT_EQ(run({"cancel", batch}).code, 0);
  EXPECT_TRUE(wait_until([&] { return state_of(batch) == "cancelled"; }));
  EXPECT_EQ(count(batch, "completed") + count(batch, "failed"), 65);
  EXPECT_EQ(run({"cancel", batch}).code, 0) << "it has ended";
  EXPECT_TRUE(wait_until([&] { return state_of(short_one) == "completed"; }));
  Outcome results = run({"results", batch});
  EXPECT_EQ(results.code, 1);
  EXPECT_EQ(std::count(results.out.begin(), results.out.end(), '\n'), 65);
  EXPECT_NE(results.out.find("\"code\":\"cancelled\""), std::string::npos);
  // The worker goes on.
  std::string next = submit(lines(3, 3));
  EXPECT_TRUE(wait_until([&] { return state_of(next) == "completed"; }));
  end_worker(worker);
  EXPECT_EQ(run({"prune", batch}).code, 0);
  EXPECT_EQ(run({"status", batch}).code, 2);
}

TEST_F(Life, one_line_is_cancelled_and_retried) {
  std::string batch = submit(lines(3, 3));
  EXPECT_EQ(run({"cancel", batch, "line-2"}).code, 0);
  EXPECT_EQ(run({"cancel", batch, "nobody"}).code, 2);
  EXPECT_EQ(count(batch, "failed"), 1);
  EXPECT_EQ(run({"retry", batch, "line-2"}).code, 0);
  EXPECT_EQ(run({"retry", batch, "line-1"}).code, 2) << "it has not failed";
  EXPECT_EQ(run({"worker", "--drain"}).code, 0);
  EXPECT_EQ(count(batch, "completed"), 3);
}

TEST_F(Life, what_does_not_make_it_in_time_expires) {
  std::string batch = submit(endless(), {"--expires", "2s"});
  pid_t worker = start_worker();
  EXPECT_TRUE(wait_until([&] { return state_of(batch) == "expired"; }));
  end_worker(worker);
  EXPECT_NE(run({"results", batch}).out.find("\"code\":\"expired\""), std::string::npos);
  EXPECT_FALSE(status(batch).find("expired_at")->is_null());
  EXPECT_TRUE(status(batch).find("completed_at")->is_null());
}

TEST_F(Life, the_same_submission_is_noticed_and_under_a_key_added_once) {
  std::string first = submit(lines(2, 2), {"--idempotency-key", "tonight"});
  EXPECT_EQ(submit(lines(2, 2), {"--idempotency-key", "tonight"}), first);
  std::string in = write_file("other.jsonl", lines(3, 2));
  EXPECT_EQ(run({"submit", in, "--model", model(), "--idempotency-key", "tonight"}).code, 2);
  write_file("in.jsonl", lines(2, 2));
  Outcome again = run({"submit", folder_.path("in.jsonl"), "--model", model()});
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.err.find("are there as " + first), std::string::npos) << again.err;
}

TEST_F(Life, sql_submits_cancels_and_retries_under_the_workers_eyes) {
  std::string batch = submit(endless());
  pid_t worker = start_worker({"--model", model()});
  EXPECT_TRUE(wait_until([&] { return status(batch).find("running")->as_integer() > 0; }));
  EXPECT_EQ(sql(format("UPDATE batches SET status = 'cancelled' WHERE id = '{}'", batch)), "");
  EXPECT_TRUE(wait_until([&] { return state_of(batch) == "cancelled"; }));
  EXPECT_EQ(
      sql("INSERT INTO inbox (batch, line) VALUES ('by-sql', '{\"id\":\"a\",\"prompt\":\"x\","
          "\"max_tokens\":2}'), ('by-sql', '{\"id\":\"b\",\"prompt\":5}')"),
      "");
  EXPECT_TRUE(wait_until([&] {
    return sql("SELECT status, completed, failed FROM batches WHERE name = 'by-sql'") ==
           "completed|1|1|";
  }));
  EXPECT_EQ(sql("SELECT count(*) FROM inbox"), "0|");
  EXPECT_NE(
      sql("SELECT error_message FROM jobs WHERE custom_id = 'b'").find("prompt"),
      std::string::npos);
  end_worker(worker);
}

TEST_F(Life, a_pause_is_kept_and_a_resume_goes_on) {
  std::string batch = submit(lines(2, 2));
  EXPECT_EQ(run({"pause"}).code, 0);
  pid_t worker = start_worker();
  EXPECT_TRUE(
      wait_until([&] { return run({"status"}).out.find("waiting: paused") != std::string::npos; }));
  EXPECT_EQ(count(batch, "completed"), 0);
  EXPECT_EQ(run({"resume"}).code, 0);
  EXPECT_TRUE(wait_until([&] { return state_of(batch) == "completed"; }));
  std::string second = submit(endless());
  EXPECT_TRUE(wait_until([&] { return status(second).find("running")->as_integer() > 0; }));
  EXPECT_EQ(run({"pause"}).code, 0);
  EXPECT_TRUE(wait_until([&] { return status(second).find("running")->as_integer() == 0; }))
      << "what runs is saved and put back";
  EXPECT_NE(sql("SELECT count(*) FROM checkpoint"), "0|");
  end_worker(worker);
}

TEST_F(Life, outside_of_its_window_a_worker_waits_until_it_is_told_to_run_now) {
  std::string batch = submit(lines(2, 2));
  // Never this hour, whatever the hour is.
  std::time_t later = std::time(nullptr) + 12 * 3600;
  std::tm utc{};
  ::gmtime_r(&later, &utc);
  std::string window = format("{:02}:00-{:02}:30 UTC", utc.tm_hour, utc.tm_hour);
  pid_t worker = start_worker({"--window", window});
  std::string expected = format("waiting: window opens {:02}:00", utc.tm_hour);
  EXPECT_TRUE(wait_until([&] { return run({"status"}).out.find(expected) != std::string::npos; }))
      << run({"status"}).out;
  EXPECT_EQ(count(batch, "completed"), 0);
  EXPECT_EQ(run({"run-now", "--for", "1h"}).code, 0);
  EXPECT_TRUE(wait_until([&] { return state_of(batch) == "completed"; }));
  end_worker(worker);
}

TEST_F(Life, a_stop_file_makes_the_worker_wait) {
  std::string batch = submit(lines(2, 2));
  std::string stop = write_file("stop", "");
  pid_t worker = start_worker({"--stop-file", stop});
  EXPECT_TRUE(
      wait_until([&] { return run({"status"}).out.find("stop file") != std::string::npos; }));
  std::filesystem::remove(stop);
  EXPECT_TRUE(wait_until([&] { return state_of(batch) == "completed"; }));
  end_worker(worker);
}

TEST_F(Life, several_models_are_served_and_none_waits_beyond_the_bound) {
  TinyModelOptions options;
  options.chat_template = "{{ messages }}";
  options.context_tokens = 32'768;
  write_tiny_llama(folder_.path("second.gguf"), options);
  std::string big = submit(endless());
  std::string small = run({"submit", write_file("small.jsonl", lines(2, 2)), "--model",
                           folder_.path("second.gguf")})
                          .out.substr(0, 30);
  pid_t worker = start_worker({"--model-wait", "1s"});
  EXPECT_TRUE(wait_until([&] { return state_of(small) == "completed"; }));
  EXPECT_NE(state_of(big), "completed");
  // And back again.
  EXPECT_TRUE(wait_until([&] { return status(big).find("running")->as_integer() > 0; }));
  end_worker(worker);
}

TEST_F(Life, the_service_manager_is_told_what_goes_on) {
  NotifySocket socket(folder_.path("notify"));
  environment_["NOTIFY_SOCKET"] = folder_.path("notify");
  environment_["WATCHDOG_USEC"] = "1000000";
  std::string batch = submit(endless());
  pid_t worker = start_worker();
  std::vector<std::string> all;
  auto has = [&](const std::string& part) {
    for (std::string& message : socket.received())
      all.push_back(std::move(message));
    return std::any_of(all.begin(), all.end(), [&](const std::string& message) {
      return message.find(part) != std::string::npos;
    });
  };
  EXPECT_TRUE(wait_until([&] { return has("READY=1"); }));
  EXPECT_TRUE(wait_until([&] { return has("sequences at work"); }));
  EXPECT_TRUE(wait_until([&] { return has("WATCHDOG=1"); }));
  EXPECT_TRUE(has("EXTEND_TIMEOUT_USEC="));
  EXPECT_TRUE(has("STATUS=loading "));
  end_worker(worker);
  EXPECT_TRUE(has("STOPPING=1"));
}

TEST_F(Life, figures_stand_in_the_metrics_file) {
  submit(lines(3, 5));
  std::string file = folder_.path("nightsweep.prom");
  EXPECT_EQ(run({"worker", "--drain", "--metrics-file", file}).code, 0);
  std::string text = read(file);
  EXPECT_NE(text.find("nightsweep_jobs{state=\"completed\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("nightsweep_tokens_total{kind=\"generated\"} 15\n"), std::string::npos);
}

TEST_F(Life, the_night_stands_in_status_until_it_is_pruned) {
  const auto night = [&] {
    const Json status = Json::parse(run({"status", "--json"}).out);
    return *status.find("night");
  };
  EXPECT_TRUE(night().is_null());
  // 200 bytes are as many tokens here, behind two that begin every text: all in common.
  const std::string head(200, 'q');
  submit(
      "{\"prompt\":\"" + head + "a\",\"max_tokens\":5,\"ignore_eos\":true}\n{\"prompt\":\"" + head +
      "b\",\"max_tokens\":5,\"ignore_eos\":true}\n");
  EXPECT_EQ(run({"worker", "--drain"}).code, 0);
  const Json told = night();
  EXPECT_EQ(told.find("generated_tokens")->as_integer(), 10);
  EXPECT_EQ(told.find("shared_tokens")->as_integer(), 202);
  EXPECT_EQ(told.find("binding")->as_string(), "device");
  EXPECT_GT(told.find("sweeps")->as_integer(), 4);
  const std::string table = run({"status"}).out;
  EXPECT_NE(table.find(": 10 tokens generated in "), std::string::npos) << table;
  EXPECT_NE(table.find(", 202 more shared\n"), std::string::npos) << table;
  EXPECT_EQ(run({"prune"}).code, 0);
  EXPECT_FALSE(night().is_null()) << "younger than 30 days";
  sql("UPDATE sweep SET end_ms = end_ms - 31 * 86400000");
  EXPECT_EQ(run({"prune"}).code, 0);
  EXPECT_EQ(sql("SELECT count(*) FROM sweep"), "0|");
}

TEST_F(Life, no_prompt_and_no_answer_is_logged) {
  std::string in = write_file(
      "in.jsonl", "{\"prompt\":\"XYZZY plugh\",\"max_tokens\":5}\n{\"prompt\":\"" +
                      std::string(500, 'q') + "\",\"max_tokens\":5}\n");
  Outcome outcome = run({"run", in, "--keep-going", "--model", model(), "--context", "64"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err.find("XYZZY"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("qqqq"), std::string::npos) << outcome.err;
}

TEST_F(Life, results_overwrite_nothing_and_are_for_their_owner_alone) {
  std::string batch = submit(lines(1, 1));
  EXPECT_EQ(run({"worker", "--drain"}).code, 0);
  std::string out = folder_.path("out.jsonl");
  EXPECT_EQ(run({"results", batch, "-o", out}).code, 0);
  struct stat found {};
  ASSERT_EQ(::stat(out.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
  write_file("out.jsonl", "mine");
  EXPECT_EQ(run({"results", batch, "-o", out}).code, 2);
  EXPECT_EQ(read(out), "mine");
  EXPECT_EQ(run({"results", batch, "-o", out, "--force"}).code, 0);
  EXPECT_NE(read(out), "mine");
}

TEST_F(Life, looking_makes_no_queue) {
  EXPECT_EQ(run({"status"}).code, 0);
  EXPECT_EQ(run({"status", "--json"}).out, "{\"worker\":null,\"batches\":[],\"night\":null}\n");
  EXPECT_EQ(run({"status", "last"}).code, 2);
  EXPECT_EQ(run({"results", "last"}).code, 2);
  for (const char* command : {"cancel", "retry"})
    EXPECT_EQ(run({command, "last"}).code, 2);
  EXPECT_EQ(run({"doctor"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("queue.db")));
}

TEST_F(Life, doctor_ends_with_0_only_where_a_worker_could_start) {
  submit(lines(2, 2));
  Outcome well = run({"doctor", "--model", model()});
  EXPECT_EQ(well.code, 0) << well.out;
  for (const char* part :
       {"SQLite 3", "integrity_check: ok", "free", "self-test passed", "io_uring", "locked memory",
        "clock", "driver", "can run here"}) {
    EXPECT_NE(well.out.find(part), std::string::npos) << part;
  }
  Json json = Json::parse(run({"doctor", "--json"}).out);
  EXPECT_TRUE(json.find("can_start")->as_bool());
  EXPECT_EQ(run({"doctor", "--device", "cuda"}).code, 5);
  EXPECT_EQ(run({"doctor", "--model", folder_.path("none.gguf")}).code, 4);
  EXPECT_NE(run({"doctor"}, "poison:x").out.find("NIGHTSWEEP_FAULT"), std::string::npos);
  sql("PRAGMA user_version = 99");
  Outcome newer = run({"doctor"});
  EXPECT_EQ(newer.code, 6) << newer.out;
  EXPECT_NE(newer.out.find("newer Nightsweep"), std::string::npos);
}

TEST_F(Life, a_backup_is_a_queue) {
  std::string batch = submit(lines(2, 2));
  std::string copy = folder_.path("copy.db");
  EXPECT_EQ(run({"backup", copy}).code, 0);
  EXPECT_EQ(run({"backup", copy}).code, 2) << "it is there";
  EXPECT_EQ(run({"status", batch, "--queue", copy}).code, 0);
}

// What a file of somebody else's may hold, and what it may cost.
TEST_F(Life, hostile_lines_cost_a_clear_error_and_little_memory) {
  struct Case {
    std::string line;
    const char* said;
  };
  std::string deep(100'000, '[');
  const Case cases[] = {
      {"", "at most 16777216 bytes"},  // written below: memory of ours would count as the child's
      {"{\"prompt\":" + deep + "}", "nest"},
      {std::string("{\"prompt\":\"a\0b\"}", 16), "NUL"},
      {"{\"prompt\":\"\\ud800\"}", "surrogate"},
      {"{\"prompt\":\"x\",\"temperature\":1e400}", "1e400"},
      {"{\"prompt\":\"x\",\"temperature\":1" + std::string(400, '0') + "}", "number"},
      {"{\"prompt\":\"\xff\"}", "UTF-8"},
  };
  for (const Case& one : cases) {
    std::string in = write_file("in.jsonl", one.line + "\n");
    if (one.line.empty()) {
      std::ofstream file(in);
      file << "{\"prompt\":\"";
      for (int i = 0; i < 100; ++i)
        file << std::string(1'000'000, 'a');
      file << "\"}\n";
    }
    pid_t child = start({"submit", in}, folder_.path("out"));
    int status = 0;
    rusage usage{};
    ASSERT_EQ(::wait4(child, &status, 0, &usage), child);
    std::string said = read(folder_.path("err"));
    EXPECT_EQ(WEXITSTATUS(status), 3) << said;
    EXPECT_NE(said.find("in.jsonl:1: "), std::string::npos) << said;
    EXPECT_NE(said.find(one.said), std::string::npos) << said;
    EXPECT_LT(said.size(), 1000U);
    if (!kHasAddressSanitizer) {  // it keeps freed memory
      EXPECT_LT(usage.ru_maxrss, 96 * 1024) << "KiB";
    }
  }
  EXPECT_EQ(run({"status", "--json"}).out.find("batch_"), std::string::npos);
}

TEST_F(Life, a_default_that_cannot_be_set_is_a_fault_of_the_configuration) {
  std::string config = write_file(
      "config.toml",
      format("[models.tiny]\nfile = \"{}\"\n[models.tiny.defaults]\ntemprature = 0.5\n", model()));
  std::string in = write_file("in.jsonl", lines(1, 1));
  Outcome outcome = run({"submit", in, "--model", "tiny", "--config", config});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("config.toml:4: models.tiny.defaults.temprature"), std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace nightsweep
