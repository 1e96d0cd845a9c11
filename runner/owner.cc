#include "runner/owner.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

extern char** environ;  // NOLINT: posix_spawn wants it

namespace nightsweep {

namespace {

std::string first_word(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

// What a command prints; empty when it cannot be run or fails.
std::string output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writer.value(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (const std::string& word : command)
    argv.push_back(const_cast<char*>(word.c_str()));  // NOLINT: exec takes it so, and only reads
  argv.push_back(nullptr);
  pid_t child = 0;
  int error = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  writer.close();
  if (error != 0) return {};
  std::string text;
  char buffer[4096];
  for (;;) {
    ssize_t n = ::read(reader.value(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "";
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

}  // namespace

bool is_on_battery(const std::string& power_folder) {
  bool has_mains = false;
  bool is_discharging = false;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(power_folder, missing)) {
    std::string type = first_word(entry.path() / "type");
    // A mouse has a battery too.
    if (first_word(entry.path() / "scope") == "Device") continue;
    if (type == "Battery") {
      is_discharging = is_discharging || first_word(entry.path() / "status") == "Discharging";
    } else if (first_word(entry.path() / "online") == "1") {
      has_mains = true;
    }
  }
  return is_discharging && !has_mains;
}

std::optional<std::string> find_gpu_user(std::string_view table, int64_t own_pid) {
  constexpr long kMuchTime = 5;      // percent
  constexpr long kMuchMemory = 512;  // MiB
  std::istringstream lines{std::string(table)};
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    if (words[0] == "#") {
      // The first heading names the columns, the second their units.
      if (names.empty()) names.assign(words.begin() + 1, words.end());
      continue;
    }
    auto column = [&](const char* name) -> std::string {
      auto at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      return at < names.size() && at < words.size() ? words[at] : "-";
    };
    auto number = [&](const char* name) {
      return std::strtol(column(name).c_str(), nullptr, 10);  // 0 for "-"
    };
    int64_t pid = number("pid");
    if (pid == 0 || pid == own_pid) continue;
    if (number("sm") >= kMuchTime || number("fb") >= kMuchMemory) {
      return format("{} (pid {})", column("command"), pid);
    }
  }
  return std::nullopt;
}

std::optional<std::string> OwnerWatch::gpu_user() {
  constexpr auto kLookEvery = std::chrono::seconds(10);
  auto now = std::chrono::steady_clock::now();
  if (last_gpu_look_ && now - *last_gpu_look_ < kLookEvery) return last_gpu_user_;
  if (!last_gpu_look_ && output_of(options_.gpu_command).empty()) {
    log_warning(
        "{}: the GPU's other users cannot be seen; no work waits for them",
        options_.gpu_command.front());
  }
  last_gpu_look_ = now;
  last_gpu_user_ = find_gpu_user(output_of(options_.gpu_command), ::getpid());
  return last_gpu_user_;
}

std::optional<std::string> OwnerWatch::wants_machine() {
  std::error_code ignored;
  if (!options_.stop_file.empty() && std::filesystem::exists(options_.stop_file, ignored)) {
    return format("the stop file {} is there", options_.stop_file);
  }
  if (options_.yields_to_battery && is_on_battery(options_.power_folder)) {
    return "on battery power";
  }
  if (options_.yields_to_gpu_users) {
    if (auto user = gpu_user()) return format("{} uses the GPU", *user);
  }
  return std::nullopt;
}

}  // namespace nightsweep
