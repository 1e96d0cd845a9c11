#include "queue/worker_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/error.h"

namespace nightsweep {

namespace {

// is_held() of another process holds the lock for an instant.
constexpr int kMaxLockTries = 25;
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

bool WorkerLock::take(int64_t pid, const std::string& host, int64_t started_ms) {
  bool is_new = ::access(path_.c_str(), F_OK) != 0;
  FileDescriptor fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.is_open()) fail_errno(ErrorKind::queue, errno, path_);
  // Whoever may use the queue may ask who holds it.
  struct stat queue {};
  if (is_new && ::stat(path_.substr(0, path_.rfind('.')).c_str(), &queue) == 0) {
    (void)!::fchmod(fd.value(), queue.st_mode & 0666);
  }
  int n_tries = 1;
  while (!try_lock(fd.value(), LOCK_EX, path_)) {
    if (++n_tries > kMaxLockTries) {
      std::string holder = first_line(fd.value());
      fail(
          ErrorKind::queue,
          "{}: another worker holds this queue: {} (wait for it or stop it; `nightsweep status` "
          "shows what it does)",
          path_, holder.empty() ? "a process that has just started" : holder);
    }
    std::this_thread::sleep_for(kPause);
  }
  // A new file is as empty as one that was left in order, and tells nothing.
  struct stat found {};
  bool ended_in_order = ::fstat(fd.value(), &found) == 0 && found.st_size == 0 && !is_new;
  if (::ftruncate(fd.value(), 0) != 0) fail_errno(ErrorKind::storage, errno, path_);
  write_fully(
      fd.value(), format("pid {} on {}, started at {}\n", pid, host, utc_text(started_ms)), path_);
  fd_ = std::move(fd);
  return ended_in_order;
}

void WorkerLock::end_in_order() noexcept {
  if (!fd_.is_open()) return;
  // Shorter needs no room. Should even that fail, the next worker takes this end for a crash.
  (void)!::ftruncate(fd_.value(), 0);
  fd_.close();
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
