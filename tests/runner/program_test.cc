// Every documented exit code, and what the commands promise, through the program itself.
#include "support/program.h"

#include <sys/stat.h>

#include <filesystem>
#include <random>
#include <thread>

#include "base/json.h"
#include "kernels/device.h"

namespace nightsweep {
namespace {

size_t count_lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

using Program = ProgramTest;

TEST_F(Program, run_answers_every_line_in_order_and_ends_with_0) {
  std::string in = write_file("in.jsonl", lines(5, 4));
  std::string out = folder_.path("out.jsonl");
  Outcome outcome = run({"run", in, "-o", out, "--model", model()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  std::string answers = read(out);
  ASSERT_EQ(count_lines(answers), 5U);
  EXPECT_LT(answers.find("\"line-1\""), answers.find("\"line-5\""));
  EXPECT_NE(outcome.err.find("5 answered, 0 failed"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("resident"), std::string::npos) << outcome.err;
}

TEST_F(Program, the_same_line_again_writes_the_same_answers_without_work) {
  std::string in = write_file("in.jsonl", lines(3, 4));
  ASSERT_EQ(run({"run", in, "-o", folder_.path("a"), "--model", model()}).code, 0);
  Outcome again = run({"run", in, "-o", folder_.path("b"), "--model", model()});
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.err.find("3 of 3 are done"), std::string::npos) << again.err;
  EXPECT_EQ(read(folder_.path("a")), read(folder_.path("b")));
}

TEST_F(Program, a_killed_run_goes_on_to_the_same_bytes) {
  std::string in = write_file("in.jsonl", lines(4, 60));
  std::vector<std::string> command = {"run", in,        "--stable", "--batch",
                                      "4",   "--model", model(),    "-o"};
  auto with_output = [&](const std::string& name) {
    auto words = command;
    words.push_back(folder_.path(name));
    return words;
  };
  EXPECT_EQ(run(with_output("a"), "crash:step:20").code, 128 + SIGKILL);
  EXPECT_FALSE(std::ifstream(folder_.path("a")).good()) << "no half file";
  Outcome resumed = run(with_output("a"));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  auto fresh = with_output("b");
  fresh.insert(fresh.end(), {"--queue", folder_.path("other.db")});
  ASSERT_EQ(run(fresh).code, 0);
  EXPECT_EQ(read(folder_.path("a")), read(folder_.path("b")));
}

TEST_F(Program, twenty_kills_in_one_run_leave_the_same_bytes) {
  // 6,400 steps; no attempt gets further than 150, so the work outlasts the kills on any machine.
  std::string in = write_file("in.jsonl", lines(64, 400));
  std::vector<std::string> command = {"run",     in,      "--stable", "--batch",        "4",
                                      "--model", model(), "-o",       folder_.path("a")};
  std::mt19937 random(20);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same moments every time
  int n_kills = 0;
  for (int i = 0; i < 20; ++i) {
    bool is_between_steps = i % 2 == 0;
    std::string fault = format("crash:step:{}", is_between_steps ? 1 + random() % 60 : 150);
    pid_t child = start(command, folder_.path("out"), fault);
    if (!is_between_steps) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
      ::kill(child, SIGKILL);
    }
    n_kills += wait_for(child) == 128 + SIGKILL ? 1 : 0;
  }
  EXPECT_EQ(n_kills, 20) << "the work must outlast the kills";
  EXPECT_FALSE(std::ifstream(folder_.path("a")).good()) << "no half file";
  Outcome resumed = run(command);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  command.back() = folder_.path("b");
  command.insert(command.end(), {"--queue", folder_.path("other.db")});
  ASSERT_EQ(run(command).code, 0);
  EXPECT_EQ(read(folder_.path("a")), read(folder_.path("b")));
}

TEST_F(Program, a_poison_line_kills_the_process) {
  std::string in = write_file("in.jsonl", "{\"id\":\"bad\",\"prompt\":\"x\",\"max_tokens\":4}\n");
  EXPECT_EQ(run({"run", in, "--model", model()}, "poison:bad").code, 128 + SIGKILL);
}

TEST_F(Program, lines_with_errors_end_with_1) {
  std::string in = write_file("in.jsonl", lines(1, 2) + "{\"prompt\":1}\n");
  Outcome outcome = run({"run", in, "--keep-going", "--model", model()});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(count_lines(outcome.out), 2U);
  EXPECT_EQ(run({"results", "last"}).code, 1);
}

TEST_F(Program, a_wrong_command_line_ends_with_2) {
  std::string in = write_file("in.jsonl", lines(1, 2));
  EXPECT_EQ(run({}).code, 2);
  Outcome mistyped = run({"rnu"});
  EXPECT_EQ(mistyped.code, 2);
  EXPECT_NE(mistyped.err.find("did you mean run?"), std::string::npos) << mistyped.err;
  EXPECT_EQ(run({"run"}).code, 2);
  EXPECT_EQ(run({"run", in, "--nonsense"}).code, 2);
  EXPECT_EQ(run({"run", in, "--model", model(), "--set", "n=oops"}).code, 2);
  EXPECT_EQ(run({"run", in, "--model", model(), "-o", in}).code, 2);
  EXPECT_EQ(read(in), lines(1, 2)) << "the input is untouched";
  EXPECT_EQ(run({"status", "nobatch"}).code, 2);
  EXPECT_EQ(run({"results", "nobatch"}).code, 2);
}

TEST_F(Program, a_refused_file_ends_with_3_and_queues_nothing) {
  std::string in = write_file("in.jsonl", lines(2, 2) + "{\"prompt\":true}\n");
  Outcome outcome = run({"run", in, "--model", model()});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("in.jsonl:3: "), std::string::npos) << outcome.err;
  EXPECT_EQ(run({"submit", in}).code, 3);
  Outcome status = run({"status", "--json"});
  EXPECT_EQ(Json::parse(status.out).find("batches")->as_array().size(), 0U);
}

TEST_F(Program, a_missing_or_damaged_model_ends_with_4) {
  std::string in = write_file("in.jsonl", lines(1, 2));
  EXPECT_EQ(run({"run", in, "--model", folder_.path("none.gguf")}).code, 4);
  std::string damaged = write_file("damaged.gguf", "GGUF and then nothing");
  EXPECT_EQ(run({"run", in, "--model", damaged}).code, 4);
  EXPECT_EQ(run({"inspect", damaged}).code, 4);
}

TEST_F(Program, a_model_that_cannot_run_queues_nothing) {
  TinyModelOptions options;
  options.n_kv_heads = 3;
  write_tiny_llama(folder_.path("odd.gguf"), options);
  std::string in = write_file("in.jsonl", lines(1, 2));
  for (const char* command : {"run", "submit"}) {
    Outcome outcome = run({command, in, "--model", folder_.path("odd.gguf")});
    EXPECT_EQ(outcome.code, 4);
    EXPECT_NE(outcome.err.find("head_count_kv"), std::string::npos) << outcome.err;
  }
  Outcome status = run({"status", "--json"});
  EXPECT_EQ(Json::parse(status.out).find("batches")->as_array().size(), 0U);
}

TEST_F(Program, a_model_that_does_not_tell_its_context_runs) {
  TinyModelOptions options;
  options.context_tokens = 0;
  write_tiny_llama(folder_.path("untold.gguf"), options);
  std::string in = write_file("in.jsonl", lines(1, 2));
  Outcome outcome = run({"run", in, "--model", folder_.path("untold.gguf")});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.err.find("4096 tokens are taken"), std::string::npos) << outcome.err;
}

// Its weights stream from 9 MiB.
void write_wide_model(const std::string& path) {
  TinyModelOptions options;
  options.n_layers = 8;
  options.dim = 128;
  options.ff_dim = 1024;
  options.context_tokens = 4096;
  write_tiny_llama(path, options);
}

TEST_F(Program, a_prompt_that_finds_no_room_is_told_so) {
  write_wide_model(folder_.path("wide.gguf"));
  std::string ids = "5";
  for (int i = 1; i < 4000; ++i)
    ids += ",5";
  std::string in = write_file("in.jsonl", "{\"prompt\":[" + ids + "],\"max_tokens\":2}\n");
  Outcome outcome = run({"run", in, "--model", folder_.path("wide.gguf"), "--ram", "9MiB"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("the prompt has 4000 tokens"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("raise it"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("set max_tokens"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.err.find("nightsweep retry batch_"), std::string::npos) << outcome.err;
}

// Memory is shared for what the file holds: one answer that becomes long, and weights that stream.
TEST_F(Program, a_single_long_answer_has_room) {
  write_wide_model(folder_.path("wide.gguf"));
  std::string in = write_file("in.jsonl", lines(1, 600));
  Outcome outcome = run({"run", in, "--model", folder_.path("wide.gguf"), "--ram", "9MiB"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("\"completion_tokens\":600"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.err.find("streamed"), std::string::npos) << outcome.err;
}

TEST_F(Program, an_output_that_is_no_regular_file_stays_what_it_is) {
  std::string in = write_file("in.jsonl", lines(2, 2));
  std::string out = folder_.path("out.jsonl");
  ASSERT_EQ(run({"run", in, "--model", model(), "-o", out}).code, 0);
  std::string pipe = folder_.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  // Open for both, so that neither side waits for the other.
  FileDescriptor reader(::open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  EXPECT_EQ(run({"results", "last", "-o", pipe}).code, 0);
  std::string seen(read(out).size() + 1, '\0');
  ssize_t n_seen = ::read(reader.value(), seen.data(), seen.size());
  EXPECT_EQ(seen.substr(0, n_seen > 0 ? static_cast<size_t>(n_seen) : 0), read(out));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));

  std::string target = folder_.path("target");
  std::string link = folder_.path("link");
  std::filesystem::create_symlink("target", link);
  for (const char* state : {"dangling", "there"}) {
    EXPECT_EQ(run({"results", "last", "--force", "-o", link}).code, 0) << state;
    EXPECT_TRUE(std::filesystem::is_symlink(link)) << state;
    EXPECT_EQ(read(target), read(out)) << state;
  }
}

TEST_F(Program, an_output_that_cannot_be_written_is_refused_before_the_work) {
  std::string in = write_file("in.jsonl", lines(1, 2));
  EXPECT_EQ(run({"run", in, "--model", model(), "-o", folder_.path("no/such/out")}).code, 7);
  EXPECT_EQ(run({"run", in, "--model", model(), "-o", folder_.path("")}).code, 2);
  Outcome status = run({"status", "--json"});
  EXPECT_EQ(Json::parse(status.out).find("batches")->as_array().size(), 0U);
}

TEST_F(Program, model_and_queue_are_no_place_for_the_output) {
  std::string in = write_file("in.jsonl", lines(1, 2));
  std::string before = read(model());
  EXPECT_EQ(run({"run", in, "--model", model(), "-o", model()}).code, 2);
  std::string ids = write_file("ids.txt", "5 6");
  EXPECT_EQ(run({"logits", "--model", model(), "--tokens", ids, "-o", model()}).code, 2);
  EXPECT_TRUE(read(model()) == before) << "the model is untouched";
  ASSERT_EQ(run({"submit", in, "--model", model()}).code, 0);
  EXPECT_EQ(run({"results", "last", "-o", folder_.path("queue.db")}).code, 2);
  EXPECT_EQ(run({"status", "last"}).code, 0);
}

TEST_F(Program, a_device_that_is_not_there_ends_with_5) {
  std::string in = write_file("in.jsonl", lines(1, 2));
  CudaSupport support = cuda_support();
  std::string missing = format("cuda:{}", support.n_gpus);
  Outcome outcome = run({"run", in, "--model", model(), "--device", missing});
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_NE(outcome.err.find("--device " + missing), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(support.why_not), std::string::npos) << outcome.err;
  EXPECT_EQ(run({"status", "last"}).code, 2) << "nothing was queued";
}

TEST_F(Program, what_only_the_cpu_does_is_refused_for_a_gpu) {
  if (cuda_support().n_gpus == 0) GTEST_SKIP() << "SKIPPED: " << cuda_support().why_not;
  std::string in = write_file("in.jsonl", lines(1, 2));
  for (const char* option : {"--math=exact", "--kv=f32"}) {
    Outcome outcome = run({"run", in, "--model", model(), "--device", "cuda", option});
    EXPECT_EQ(outcome.code, 2) << option << ": " << outcome.err;
  }
}

TEST_F(Program, a_second_worker_ends_with_6) {
  std::string in = write_file("in.jsonl", lines(1, 2));
  pid_t first = start({"worker", "--model", model()}, folder_.path("first"));
  for (int i = 0; i < 200; ++i) {
    Json status = Json::parse(run({"status", "--json"}).out);
    if (!status.find("worker")->is_null()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(run({"worker", "--drain", "--model", model()}).code, 6);
  EXPECT_EQ(run({"run", in, "--model", model()}).code, 6);
  ::kill(first, SIGTERM);
  EXPECT_EQ(wait_for(first), 0) << "SIGTERM is an orderly end";
}

TEST_F(Program, a_full_disk_ends_with_7) {
  std::string in = write_file("in.jsonl", lines(1, 2));
  ASSERT_EQ(run({"run", in, "--model", model()}).code, 0);
  EXPECT_EQ(wait_for(start({"results", "last"}, "/dev/full")), 7);
  EXPECT_EQ(run({"results", "last", "-o", folder_.path("no/such/folder/out")}).code, 7);
}

TEST_F(Program, a_stopped_run_ends_with_75_and_goes_on_later) {
  std::string in = write_file("in.jsonl", lines(64, 400));
  pid_t child = start({"run", in, "--model", model(), "--batch", "2"}, folder_.path("first"));
  for (int i = 0; i < 200; ++i) {
    Json status = Json::parse(run({"status", "--json"}).out);
    if (!status.find("batches")->as_array().empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ::kill(child, SIGTERM);
  EXPECT_EQ(wait_for(child), 75);
  EXPECT_EQ(run({"results", "last"}).code, 75);
}

TEST_F(Program, submit_worker_and_results_work_apart) {
  std::string in = write_file("in.jsonl", lines(3, 3));
  Outcome submitted = run({"submit", in, "--model", model()});
  ASSERT_EQ(submitted.code, 0) << submitted.err;
  ASSERT_EQ(count_lines(submitted.out), 1U) << "the id alone";
  std::string id = submitted.out.substr(0, submitted.out.size() - 1);
  EXPECT_EQ(run({"results", id}).code, 75);
  Outcome worked = run({"worker", "--drain"});
  EXPECT_EQ(worked.code, 0) << worked.err;
  Outcome results = run({"results", id.substr(0, id.size() - 2)});
  EXPECT_EQ(results.code, 0);
  EXPECT_EQ(count_lines(results.out), 3U);
  Json status = Json::parse(run({"status", id, "--json"}).out);
  const Json& batch = status.find("batches")->as_array().at(0);
  EXPECT_EQ(batch.find("status")->as_string(), "completed");
  EXPECT_EQ(batch.find("request_counts")->find("completed")->as_integer(), 3);
  EXPECT_TRUE(status.find("worker")->is_null());
}

TEST_F(Program, a_drain_with_jobs_for_no_known_model_ends_with_4) {
  std::string in = write_file("in.jsonl", "{\"prompt\":\"1\",\"model\":\"gpt-x\"}\n");
  ASSERT_EQ(run({"submit", in}).code, 0);
  Outcome outcome = run({"worker", "--drain"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_NE(outcome.err.find("gpt-x"), std::string::npos) << outcome.err;
  EXPECT_EQ(run({"worker", "--drain", "--model", model()}).code, 0);
  EXPECT_EQ(run({"results", "last"}).code, 0);
}

TEST_F(Program, a_reader_that_goes_away_is_no_failure) {
  std::string in = write_file("in.jsonl", lines(300, 1));
  ASSERT_EQ(run({"run", in, "--model", model(), "-o", folder_.path("all")}).code, 0);
  int pipe_ends[2];
  // Closed by exec, so that the child is not a reader of its own.
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  pid_t child = start({"results", "last"}, format("/dev/fd/{}", pipe_ends[1]));
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(read(folder_.path("err")), "");
}

TEST_F(Program, help_stands_with_an_example_for_every_command) {
  for (const char* command :
       {"run",    "submit", "worker",     "status",  "results",    "inspect", "tokenize",
        "render", "logits", "perplexity", "bench",   "completion", "cancel",  "retry",
        "prune",  "pause",  "resume",     "run-now", "backup",     "doctor",  "plan"}) {
    Outcome outcome = run({command, "--help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("Example:"), std::string::npos) << command;
    EXPECT_NE(outcome.out.find("--config"), std::string::npos) << command;
  }
  EXPECT_EQ(run({"--version"}).out.substr(0, 11), "nightsweep ");
  const std::string completion = run({"completion", "bash"}).out;
  for (const char* part : {"complete -o", "rtx-3090", "pinned registered"})
    EXPECT_NE(completion.find(part), std::string::npos) << part;
}

TEST_F(Program, logits_and_perplexity_agree_with_the_shape_they_promise) {
  std::string ids = write_file("ids.txt", "5 6 7\n8");
  std::string out = folder_.path("logits.f32");
  Outcome outcome = run({"logits", "--model", model(), "--tokens", ids, "-o", out});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read(out).size(), 4U * 320U * sizeof(float));
  EXPECT_EQ(
      run({"logits", "--model", model(), "--tokens", write_file("bad", "5 999"), "-o", out}).code,
      3);
  std::string text = write_file("text", std::string(300, 'a') + std::string(300, 'b'));
  Outcome perplexity = run({"perplexity", "--model", model(), text, "--context", "64", "--json"});
  ASSERT_EQ(perplexity.code, 0) << perplexity.err;
  Json figures = Json::parse(perplexity.out);
  EXPECT_EQ(figures.find("tokens")->as_integer(), 64 * figures.find("windows")->as_integer());
  EXPECT_GT(figures.find("ppl")->as_double(), 1.0);
}

}  // namespace
}  // namespace nightsweep
