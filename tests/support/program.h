// The program itself, run as its users run it, with a home and a queue of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace nightsweep {

struct Outcome {
  int code = 0;  // 128 + N: ended by signal N
  std::string out;
  std::string err;
};

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    TinyModelOptions options;
    options.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    write_tiny_llama(model(), options);
  }

  std::string model() const { return folder_.path("tiny.gguf"); }

  std::string write_file(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path(name)) << text;
    return folder_.path(name);
  }

  // Starts it; `out`: where stdout goes.
  pid_t
  start(std::vector<std::string> words, const std::string& out, const std::string& fault = "") {
    words.insert(words.begin(), NIGHTSWEEP_PROGRAM);
    pid_t child = ::fork();
    if (child != 0) return child;
    ::setenv("HOME", folder_.path("home").c_str(), 1);
    ::setenv("NIGHTSWEEP_QUEUE", folder_.path("queue.db").c_str(), 1);
    ::setenv("NIGHTSWEEP_THREADS", "1", 1);
    ::setenv("NIGHTSWEEP_RAM", "256MiB", 1);
    if (!fault.empty()) ::setenv("NIGHTSWEEP_FAULT", fault.c_str(), 1);
    for (const auto& [name, value] : environment_)
      ::setenv(name.c_str(), value.c_str(), 1);
    int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int err_fd = ::open(folder_.path("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(out_fd, STDOUT_FILENO);
    ::dup2(err_fd, STDERR_FILENO);
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  static int wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  Outcome run(const std::vector<std::string>& words, const std::string& fault = "") {
    Outcome outcome;
    outcome.code = wait_for(start(words, folder_.path("out"), fault));
    outcome.out = read_whole_file(folder_.path("out"), ErrorKind::internal);
    outcome.err = read_whole_file(folder_.path("err"), ErrorKind::internal);
    return outcome;
  }

  static std::string read(const std::string& path) {
    return read_whole_file(path, ErrorKind::internal);
  }

  // Lines whose answers all have exactly `tokens` tokens.
  static std::string lines(int n, int tokens) {
    std::string text;
    for (int i = 0; i < n; ++i) {
      text += format(
          "{{\"prompt\":\"line {}\",\"seed\":{},\"max_tokens\":{},\"ignore_eos\":true}}\n", i, i,
          tokens);
    }
    return text;
  }

  // Until it is true, at most half a minute.
  template <typename Condition>
  static bool wait_until(Condition&& condition) {
    for (int i = 0; i < 1500; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  TemporaryFolder folder_;
  std::map<std::string, std::string> environment_;  // of what is started
};

}  // namespace nightsweep
