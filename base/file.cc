#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace nightsweep {

void FileDescriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

FileDescriptor open_for_reading(const std::string& path, ErrorKind kind) {
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) fail_errno(kind, errno, path);
  return fd;
}

std::string read_whole_file(const std::string& path, ErrorKind kind) {
  FileDescriptor fd = open_for_reading(path, kind);
  std::string content;
  constexpr size_t kPiece = 1 << 16;
  for (;;) {
    size_t old_size = content.size();
    content.resize(old_size + kPiece);
    ssize_t n = ::read(fd.value(), content.data() + old_size, kPiece);
    if (n < 0 && errno != EINTR) fail_errno(kind, errno, path);
    content.resize(old_size + static_cast<size_t>(n < 0 ? 0 : n));
    if (n == 0) return content;
  }
}

void write_fully(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(ErrorKind::storage, errno, path);
    data.remove_prefix(static_cast<size_t>(n));
  }
}

unsigned private_mode(const std::string& folder) {
  constexpr mode_t kShared = S_ISGID | S_IWGRP;
  struct stat found {};
  bool is_shared = ::stat(folder.empty() ? "." : folder.c_str(), &found) == 0 &&
                   (found.st_mode & kShared) == kShared;
  return is_shared ? 0660 : 0600;
}

namespace {

// Refuses a folder.
bool is_written_in_place(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return false;
  if (S_ISDIR(found.st_mode)) {
    fail(
        ErrorKind::usage, "{}: expected a file to write, found a folder (name a file in it)", path);
  }
  return !S_ISREG(found.st_mode);
}

// What a chain of links leads to, there or not.
std::string target_of(const std::string& path) {
  std::filesystem::path target = path;
  constexpr int kMostLinks = 40;
  std::error_code not_a_link;
  for (int n = 0; n < kMostLinks; ++n) {
    std::filesystem::path next = std::filesystem::read_symlink(target, not_a_link);
    if (not_a_link) break;
    target = target.parent_path() / next;  // an absolute `next` stands alone
  }
  return target.string();
}

}  // namespace

std::string AtomicFile::partial_path(const std::string& path) {
  return path + ".partial." + std::to_string(::getpid());
}

AtomicFile::AtomicFile(const std::string& path, unsigned mode) : path_(path), written_path_(path) {
  int flags = O_WRONLY | O_CLOEXEC;
  if (!is_written_in_place(path)) {
    path_ = target_of(path);
    written_path_ = partial_path(path_);
    flags |= O_CREAT | O_TRUNC;
  }
  if (mode == 0) mode = private_mode(std::filesystem::path(path_).parent_path().string());
  fd_ = FileDescriptor(::open(written_path_.c_str(), flags, mode));
  if (!fd_.is_open()) fail_errno(ErrorKind::storage, errno, written_path_);
  // Whatever the umask says. What is written in place keeps its own.
  if (written_path_ != path_ && ::fchmod(fd_.value(), mode) != 0) {
    fail_errno(ErrorKind::storage, errno, written_path_);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_.is_open() && written_path_ != path_) ::unlink(written_path_.c_str());
}

void AtomicFile::check(const std::string& path) {
  // Opening a pipe would be seen by its reader.
  if (!is_written_in_place(path)) AtomicFile probe(path);
}

void AtomicFile::write(std::string_view data) {
  constexpr size_t kBuffer = 1 << 20;
  buffer_ += data;
  if (buffer_.size() >= kBuffer) flush();
}

void AtomicFile::flush() {
  write_fully(fd_.value(), buffer_, written_path_);
  buffer_.clear();
}

void AtomicFile::commit() {
  flush();
  if (written_path_ == path_) return fd_.close();
  if (::fsync(fd_.value()) != 0) fail_errno(ErrorKind::storage, errno, written_path_);
  if (::rename(written_path_.c_str(), path_.c_str()) != 0) {
    fail_errno(ErrorKind::storage, errno, path_);
  }
  fd_.close();
  // The rename is durable only once the folder is.
  std::string folder = std::filesystem::path(path_).parent_path().string();
  FileDescriptor directory(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY));
  if (directory.is_open()) ::fsync(directory.value());
}

FileIdentity identity_of(int fd, const std::string& path, ErrorKind kind) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_errno(kind, errno, path);
  return {
      .device = status.st_dev,
      .inode = status.st_ino,
      .modified_s = status.st_mtim.tv_sec,
      .modified_ns = status.st_mtim.tv_nsec};
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace nightsweep
