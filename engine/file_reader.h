// FileReader: raw reads of a model's files, many in flight, past the page cache where that works.
//
// Behind one interface: io_uring with O_DIRECT, and a pool of threads that call pread or copy from
// a mapping of the files. A reader reports what the kernel reported (short reads, errors);
// ReadQueue makes whole ranges of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace nightsweep {

// Offsets, sizes and addresses of O_DIRECT reads are multiples of this: no block device in use has
// larger sectors.
inline constexpr uint64_t kDirectAlignment = 4096;

constexpr uint64_t align_down(uint64_t value, uint64_t alignment) {
  return value - value % alignment;
}
constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return align_down(value + alignment - 1, alignment);
}

// Open files, and what they were when they were opened.
class FileSet {
 public:
  // `flags` are added to O_RDONLY | O_CLOEXEC. Throws Error(model) that names the path, also when a
  // file does not have `expected_bytes` or, where they are given, is not the one of `identities`:
  // weights of two files of one name must not meet. errno EINVAL (no O_DIRECT here) gives an empty
  // set.
  static FileSet open(
      const std::vector<std::string>& paths,
      const std::vector<uint64_t>& expected_bytes,
      int flags,
      const std::vector<FileIdentity>& identities = {});

  size_t size() const { return files_.size(); }
  int fd(uint32_t file) const { return files_[file].fd.value(); }
  const std::string& path(uint32_t file) const { return files_[file].path; }
  uint64_t size_bytes(uint32_t file) const { return files_[file].size_bytes; }

  // Throws Error(model) when a file has another size or modification time than at the start.
  void check_unchanged() const;
  void check_unchanged(uint32_t file) const;
  uint64_t current_bytes(uint32_t file) const;

 private:
  struct File {
    std::string path;
    FileDescriptor fd;
    uint64_t size_bytes = 0;
    FileIdentity identity;
  };
  std::vector<File> files_;
};

struct FileRead {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  std::byte* into = nullptr;
  uint64_t tag = 0;  // the caller's; comes back
};

struct FileReadEnd {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes read, possibly fewer than asked for; 0: end of file; below: -errno
};

// Used by one thread at a time. Destroying it waits for the reads in flight.
class FileReader {
 public:
  virtual ~FileReader() = default;

  const FileSet& files() const { return files_; }
  // "io_uring O_DIRECT", "pread O_DIRECT", "pread buffered" or "mmap"
  const std::string& description() const { return description_; }
  // Of offsets, sizes and addresses.
  uint64_t alignment() const { return alignment_; }
  uint32_t depth() const { return depth_; }

  // May wait until the next call of wait() before it starts. REQUIRES: fewer than depth() reads in
  // flight; `into` stays valid until the read has ended.
  virtual void submit(const FileRead& read) = 0;
  // Waits until at least one read has ended; appends all that have.
  // REQUIRES: a read is in flight.
  virtual void wait(std::vector<FileReadEnd>& ended) = 0;

  // See RegisteredMemory. Why the kernel refuses, for people; empty: it does not, or this reader
  // has no use for it.
  virtual std::string register_memory(std::span<std::byte> /*memory*/) { return ""; }
  virtual void forget_memory() {}

 protected:
  FileReader(FileSet files, std::string description, uint64_t alignment, uint32_t depth)
      : files_(std::move(files)),
        description_(std::move(description)),
        alignment_(alignment),
        depth_(depth) {}

  const FileSet files_;

 private:
  const std::string description_;
  const uint64_t alignment_;
  const uint32_t depth_;
};

// Memory into which a reader reads again and again: the kernel looks its pages up and holds them
// once, not in each read. Where it refuses, reads go on as they do into any other memory, and this
// says why. One at a time for a reader, used by its thread, with no read in flight at either end.
// It ends before the memory does: reads would still go to the pages that were there.
class RegisteredMemory {
 public:
  RegisteredMemory(FileReader& reader, std::span<std::byte> memory)
      : reader_(reader), why_not_(reader.register_memory(memory)) {}
  ~RegisteredMemory() { reader_.forget_memory(); }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  const std::string& why_not() const { return why_not_; }  // for people; empty: it is

 private:
  FileReader& reader_;
  const std::string why_not_;
};

struct FileReaderOptions {
  std::vector<std::string> paths;
  std::vector<uint64_t> file_bytes;      // what the files must hold
  std::vector<FileIdentity> identities;  // which files they must be; empty: any
  // "auto", "direct", "uring", "pread" or "mmap". auto and direct fall back from io_uring to
  // threads; auto and pread to buffered reads where the file system does not know O_DIRECT.
  std::string source = "auto";
  uint32_t depth = 8;  // reads in flight
  bool warns = true;   // false: a fallback is logged at debug level (somebody else has said it)
  // The kernel takes no more at once; a read that lies in two pieces is an ordinary one.
  uint64_t registered_piece_bytes = uint64_t{1} << 30;
};

using FileReaderFactory = std::function<std::unique_ptr<FileReader>(const FileReaderOptions&)>;

// Which reader a source of StreamOptions asks for.
std::string reader_source(const std::string& stream_source);

// Throws Error(model) for the files, Error(device) for a forced source that does not work here,
// Error(usage) for one that is not known.
std::unique_ptr<FileReader> open_file_reader(const FileReaderOptions& options);

}  // namespace nightsweep
