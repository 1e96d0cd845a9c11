// What a log line looks like where it arrives: a file, and the journal.
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "base/file.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

class Log : public testing::Test {
 protected:
  // stderr becomes a file; where `is_journal`, $JOURNAL_STREAM names it as systemd names its
  // socket.
  std::string written(bool is_journal, LogLevel least, const std::function<void()>& body) {
    std::string path = folder_.path("err");
    int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int before = ::dup(STDERR_FILENO);
    ::dup2(fd, STDERR_FILENO);
    struct stat info {};
    ::fstat(fd, &info);
    ::close(fd);
    std::string name =
        is_journal ? std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) : "1:1";
    ::setenv("JOURNAL_STREAM", name.c_str(), 1);
    set_up_log(least, true);
    body();
    ::dup2(before, STDERR_FILENO);
    ::close(before);
    ::unsetenv("JOURNAL_STREAM");
    set_up_log(LogLevel::info, false);
    return read_whole_file(path, ErrorKind::storage);
  }

  TemporaryFolder folder_;
};

void say_everything() {
  log_text(LogLevel::debug, "d");
  log_text(LogLevel::info, "i");
  log_text(LogLevel::warning, "w");
  log_text(LogLevel::error, "first\nsecond");
}

TEST_F(Log, the_journal_gets_a_priority_a_line_and_no_colours) {
  EXPECT_EQ(
      written(true, LogLevel::debug, say_everything), "<7>d\n<6>i\n<4>w\n<3>first\n<3>second\n");
}

TEST_F(Log, an_inherited_variable_makes_no_journal_of_a_file) {
  std::string text = written(false, LogLevel::info, say_everything);
  EXPECT_EQ(text.find("<6>"), std::string::npos) << text;
  EXPECT_NE(text.find("warning: w"), std::string::npos) << text;
  EXPECT_NE(text.find("error: first"), std::string::npos) << text;
}

TEST_F(Log, what_is_below_the_level_is_not_written) {
  EXPECT_EQ(written(true, LogLevel::warning, say_everything), "<4>w\n<3>first\n<3>second\n");
}

}  // namespace
}  // namespace nightsweep
