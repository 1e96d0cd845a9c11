#include "queue/submit_lock.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/hash.h"

namespace nightsweep {

namespace {

// Two batches at one place would only keep each other's leftovers until both have ended.
off_t place_of(const std::string& public_id) {
  constexpr size_t kDigits = 15;  // of 16: an offset has a sign
  Sha256 hash;
  hash.add(public_id);
  return std::stoll(hash.hex().substr(0, kDigits), nullptr, 16);
}

struct flock lock_of(short type, const std::string& public_id) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = place_of(public_id);
  lock.l_len = 1;
  return lock;
}

}  // namespace

void SubmitLock::take(const std::string& public_id) {
  // Of the open file, not of the process: closing another descriptor of it takes nothing away.
  FileDescriptor fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.is_open()) fail_errno(ErrorKind::queue, errno, path_);
  // Whoever may use the queue may bring batches in; of a file of somebody else's it is set already.
  struct stat queue {};
  if (::stat(path_.substr(0, path_.rfind('.')).c_str(), &queue) == 0) {
    (void)!::fchmod(fd.value(), queue.st_mode & 0666);
  }
  struct flock lock = lock_of(F_WRLCK, public_id);
  if (::fcntl(fd.value(), F_OFD_SETLK, &lock) != 0) fail_errno(ErrorKind::queue, errno, path_);
  fd_ = std::move(fd);
}

bool SubmitLock::is_held(const std::string& public_id) const {
  FileDescriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.is_open()) {
    if (errno == ENOENT) return false;
    fail_errno(ErrorKind::queue, errno, path_);
  }
  struct flock lock = lock_of(F_RDLCK, public_id);
  if (::fcntl(fd.value(), F_OFD_GETLK, &lock) != 0) fail_errno(ErrorKind::queue, errno, path_);
  return lock.l_type != F_UNLCK;
}

}  // namespace nightsweep
