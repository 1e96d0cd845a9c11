#include "queue/worker_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/error.h"

namespace nightsweep {

namespace {

// is_held() of another process holds the lock for an instant.
constexpr int kMaxTries = 25;
constexpr std::chrono::milliseconds kPause(20);

bool try_lock(int fd, int mode, const std::string& path) {
  while (::flock(fd, mode | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) fail_errno(ErrorKind::queue, errno, path);
  }
  return true;
}

std::string first_line(int fd) {
  char buffer[512];
  ssize_t size = ::pread(fd, buffer, sizeof buffer, 0);
  std::string text(buffer, size > 0 ? static_cast<size_t>(size) : 0);
  return text.substr(0, text.find('\n'));
}

std::string utc_text(int64_t unix_ms) {
  std::time_t seconds = unix_ms / 1000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  size_t size = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc);
  return {text, size};
}

}  // namespace

void WorkerLock::take(int64_t pid, const std::string& host, int64_t started_ms) {
  FileDescriptor fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.is_open()) fail_errno(ErrorKind::queue, errno, path_);
  int n_tries = 1;
  while (!try_lock(fd.value(), LOCK_EX, path_)) {
    if (++n_tries > kMaxTries) {
      std::string holder = first_line(fd.value());
      fail(
          ErrorKind::queue,
          "{}: another worker holds this queue: {} (wait for it or stop it; `nightsweep status` "
          "shows what it does)",
          path_, holder.empty() ? "a process that has just started" : holder);
    }
    std::this_thread::sleep_for(kPause);
  }
  if (::ftruncate(fd.value(), 0) != 0) fail_errno(ErrorKind::storage, errno, path_);
  write_fully(
      fd.value(), format("pid {} on {}, started at {}\n", pid, host, utc_text(started_ms)), path_);
  fd_ = std::move(fd);
}

bool WorkerLock::is_held() const {
  if (is_taken()) return true;
  // Another open file description: its lock is apart from ours, and closing it touches no other.
  FileDescriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.is_open()) {
    if (errno == ENOENT) return false;
    fail_errno(ErrorKind::queue, errno, path_);
  }
  return !try_lock(fd.value(), LOCK_SH, path_);
}

}  // namespace nightsweep
