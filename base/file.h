// Files with an owner, and the two things everybody does with them: read whole, write at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace nightsweep {

// Owns a POSIX descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = other.release();
    }
    return *this;
  }

  int value() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void close();

 private:
  int fd_ = -1;
};

// Which file it is and what it was last: another file of the same name and size has another.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t modified_s = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};
FileIdentity identity_of(int fd, const std::string& path, ErrorKind kind);

// Throws Error(kind) that names the path.
FileDescriptor open_for_reading(const std::string& path, ErrorKind kind);
std::string read_whole_file(const std::string& path, ErrorKind kind);

// Writes all of `data` or throws Error(storage).
void write_fully(int fd, std::string_view data, const std::string& path);

// The mode of files that hold prompts or answers: 0600, or 0660 in a folder that is setgid and
// writable by its group, as that of a service and its users. An empty folder is the working one.
unsigned private_mode(const std::string& folder);

// A file that appears complete and at once: written beside `path`, synced, renamed, and the
// folder synced. Without commit() nothing stays behind. A symbolic link stays one: its target
// appears. What is there and is no regular file (a device, a pipe) is written in place, since
// the rename would put a file where it stood.
class AtomicFile {
 public:
  // mode: of a new file; 0: private_mode().
  explicit AtomicFile(const std::string& path, unsigned mode = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Where a regular file or none at `path` is written until it is complete, by this process.
  static std::string partial_path(const std::string& path);
  // Throws what the constructor would, before the work whose result is to be written.
  static void check(const std::string& path);

  void write(std::string_view data);  // buffered
  void commit();

 private:
  void flush();

  std::string path_;
  std::string written_path_;  // path_ itself where it is written in place
  FileDescriptor fd_;
  std::string buffer_;
};

// Whether both name the same file (same device and inode); false when one is missing.
bool is_same_file(const std::string& a, const std::string& b);

}  // namespace nightsweep
