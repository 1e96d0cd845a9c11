#include "base/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

namespace nightsweep {

namespace {

std::atomic<void (*)()> line_wiper = nullptr;

// A journal line without a priority would be "info" whatever it says.
const char* journal_prefix(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "<7>";
    case LogLevel::info:
      return "<6>";
    case LogLevel::warning:
      return "<4>";
    case LogLevel::error:
      return "<3>";
  }
  return "";
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

bool journal = false;

// $JOURNAL_STREAM names device and inode of the journal's socket; a child whose stderr was
// redirected inherits the variable all the same.
bool is_journal(int fd) {
  // Read before any thread starts.
  const char* stream = std::getenv("JOURNAL_STREAM");  // NOLINT(concurrency-mt-unsafe)
  struct stat found {};
  if (stream == nullptr || ::fstat(fd, &found) != 0) return false;
  return stream == fmt::format("{}:{}", found.st_dev, found.st_ino);
}

std::shared_ptr<spdlog::logger> make_logger(bool color) {
  auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>(
      color ? spdlog::color_mode::always : spdlog::color_mode::never);
  auto made = std::make_shared<spdlog::logger>("nightsweep", sink);
  made->set_pattern("%v");
  if (!journal) {
    made->set_pattern(color ? "%^nightsweep:%$ %v" : "nightsweep: %v");
  }
  return made;
}

std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance = make_logger(false);
  return instance;
}

}  // namespace

void set_up_log(LogLevel least, bool color) {
  journal = is_journal(STDERR_FILENO);
  logger() = make_logger(color && !journal);
  logger()->set_level(spdlog_level(least));
}

void log_text(LogLevel level, std::string_view text) {
  if (!logger()->should_log(spdlog_level(level))) return;
  if (auto* wipe = line_wiper.load()) wipe();
  std::string line = journal ? journal_prefix(level) : "";
  std::string lines;
  if (journal) {
    // Each line of the journal is a message of its own.
    for (char c : text) {
      lines += c;
      if (c == '\n') lines += journal_prefix(level);
    }
    text = lines;
  }
  if (!journal && level == LogLevel::warning) line += "warning: ";
  if (!journal && level == LogLevel::error) line += "error: ";
  line += text;
  logger()->log(spdlog_level(level), "{}", line);
}

void set_log_line_wiper(void (*wipe)()) {
  line_wiper = wipe;
}

}  // namespace nightsweep
