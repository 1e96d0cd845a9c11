// A copy of the queue that appears complete and at once.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "queue/sqlite_queue.h"

namespace nightsweep {

namespace {

// Removes a half copy, also where the copying failed.
class PartFile {
 public:
  explicit PartFile(std::string path) : path_(std::move(path)) {
    ::unlink(path_.c_str());  // of a backup that was killed
    FileDescriptor fd(
        ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.is_open()) fail_errno(ErrorKind::storage, errno, path_);
  }
  ~PartFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::string& path() const { return path_; }

  void become(const std::string& name) {
    std::filesystem::path folder = std::filesystem::path(name).parent_path();
    FileDescriptor fd = open_for_reading(path_, ErrorKind::storage);
    if (::fsync(fd.value()) != 0) fail_errno(ErrorKind::storage, errno, path_);
    // Unlike a rename, a link refuses a name that is taken.
    if (::link(path_.c_str(), name.c_str()) != 0) fail_errno(ErrorKind::storage, errno, name);
    ::unlink(path_.c_str());
    path_.clear();
    FileDescriptor directory = open_for_reading(folder.empty() ? "." : folder, ErrorKind::storage);
    if (::fsync(directory.value()) != 0) fail_errno(ErrorKind::storage, errno, folder.string());
  }

 private:
  std::string path_;
};

}  // namespace

void SqliteQueue::backup(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0) {
    fail(ErrorKind::usage, "{}: the file is there already (name another one)", path);
  }
  PartFile part(path + ".part");
  connection_.copy_to(part.path());
  part.become(path);
}

}  // namespace nightsweep
