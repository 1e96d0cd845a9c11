#include "engine/file_reader.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/host_memory.h"

namespace nightsweep {

namespace {

struct stat stat_file(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_errno(ErrorKind::storage, errno, path);
  return status;
}

// Some file systems take the flag at open and refuse the first read.
bool can_read_direct(const FileSet& files) {
  alignas(kDirectAlignment) std::array<std::byte, kDirectAlignment> block{};
  for (uint32_t file = 0; file < files.size(); ++file) {
    if (::pread(files.fd(file), block.data(), block.size(), 0) < 0 && errno == EINVAL) return false;
  }
  return true;
}

class UringReader final : public FileReader {
 public:
  // Takes over `ring`, which is set up.
  UringReader(FileSet files, const io_uring& ring, const FileReaderOptions& options)
      : FileReader(std::move(files), "io_uring O_DIRECT", kDirectAlignment, options.depth),
        ring_(ring),
        piece_bytes_(options.registered_piece_bytes),
        said_at_(options.warns ? LogLevel::info : LogLevel::debug) {
    std::vector<int> fds;
    for (uint32_t file = 0; file < files_.size(); ++file)
      fds.push_back(files_.fd(file));
    const int result =
        io_uring_register_files(&ring_, fds.data(), static_cast<unsigned>(fds.size()));
    has_registered_files_ = result == 0;
    if (has_registered_files_) return;
    log_text(
        said_at_,
        format("io_uring_register_files: {}: each read looks its file up", errno_text(-result)));
  }
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;

  ~UringReader() override {
    // Closing the ring alone does not wait for the kernel to stop writing. A failure here ends the
    // program: memory that is still being written to must not be given back.
    std::vector<FileReadEnd> ended;
    while (n_in_flight_ > 0)
      wait(ended);
    io_uring_queue_exit(&ring_);
  }

  void submit(const FileRead& read) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) fail(ErrorKind::internal, "io_uring: more reads than the queue is deep");
    const int fd = has_registered_files_ ? static_cast<int>(read.file) : files_.fd(read.file);
    const auto size_bytes = static_cast<unsigned>(read.size_bytes);
    if (const std::optional<int> piece = piece_of(read)) {
      io_uring_prep_read_fixed(entry, fd, read.into, size_bytes, read.offset, *piece);
    } else {
      io_uring_prep_read(entry, fd, read.into, size_bytes, read.offset);
    }
    if (has_registered_files_) entry->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(entry, read.tag);
    ++n_in_flight_;
  }

  void wait(std::vector<FileReadEnd>& ended) override {
    for (;;) {
      const int result = io_uring_submit_and_wait(&ring_, 1);
      if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
        fail(ErrorKind::storage, "io_uring_enter: {}", errno_text(-result));
      }
      io_uring_cqe* entry = nullptr;
      bool has_any = false;
      while (io_uring_peek_cqe(&ring_, &entry) == 0) {
        ended.push_back({io_uring_cqe_get_data64(entry), entry->res});
        io_uring_cqe_seen(&ring_, entry);
        --n_in_flight_;
        has_any = true;
      }
      if (has_any) return;
    }
  }

  std::string register_memory(std::span<std::byte> memory) override {
    std::vector<iovec> pieces;
    for (uint64_t at = 0; at < memory.size(); at += piece_bytes_) {
      pieces.push_back({memory.data() + at, std::min(piece_bytes_, memory.size() - at)});
    }
    const int result =
        io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
    if (result == 0) {
      registered_ = memory;
      return "";
    }
    std::string why = format(
        "io_uring_register_buffers of {}: {} (ulimit -l is {}): each read looks its memory up",
        size_text(memory.size()), errno_text(-result), locked_memory_limit_text());
    if (!std::exchange(has_said_, true)) log_text(said_at_, why);
    return why;
  }
  void forget_memory() override {
    if (registered_.empty()) return;
    int result = -EINTR;
    while (result == -EINTR)
      result = io_uring_unregister_buffers(&ring_);
    // This ends the program: reads would go on into pages that are not the memory's any more.
    if (result != 0) {
      fail(ErrorKind::internal, "io_uring_unregister_buffers: {}", errno_text(-result));
    }
    registered_ = {};
  }

 private:
  // The registered piece in which the read's memory lies.
  std::optional<int> piece_of(const FileRead& read) const {
    const auto offset = static_cast<uint64_t>(read.into - registered_.data());
    if (read.into < registered_.data() || offset + read.size_bytes > registered_.size()) return {};
    const uint64_t piece = offset / piece_bytes_;
    if ((offset + read.size_bytes - 1) / piece_bytes_ != piece) return {};
    return static_cast<int>(piece);
  }

  io_uring ring_;
  const uint64_t piece_bytes_;
  const LogLevel said_at_;
  bool has_said_ = false;
  bool has_registered_files_ = false;
  std::span<std::byte> registered_;  // empty: none
  uint32_t n_in_flight_ = 0;
};

// The files as the page cache holds them. Nothing touches the mapping but the kernel on our behalf:
// a page that is not there any more (the file was truncated, the disk failed) is then an error of
// the call, where a touch would be a signal.
class MappedFiles {
 public:
  explicit MappedFiles(const FileSet& files) {
    for (uint32_t file = 0; file < files.size(); ++file) {
      const uint64_t size_bytes = files.size_bytes(file);
      void* const address = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, files.fd(file), 0);
      if (address == MAP_FAILED) {
        const int error_number = errno;
        unmap();
        fail(
            ErrorKind::device, "--source mmap: {}: {}; give --source auto", files.path(file),
            errno_text(error_number));
      }
      maps_.push_back({static_cast<std::byte*>(address), size_bytes});
    }
    std::byte byte{};
    const int64_t n = read({.size_bytes = 1, .into = &byte});
    if (n != -EPERM && n != -ENOSYS) return;
    unmap();
    fail(
        ErrorKind::device,
        "--source mmap: process_vm_readv: {} (containers may forbid it in their seccomp profile); "
        "give --source auto",
        errno_text(static_cast<int>(-n)));
  }
  ~MappedFiles() { unmap(); }
  MappedFiles(const MappedFiles&) = delete;
  MappedFiles& operator=(const MappedFiles&) = delete;

  // As pread.
  int64_t read(const FileRead& wanted) const {
    const Map& map = maps_[wanted.file];
    if (wanted.offset >= map.size_bytes) return 0;
    const uint64_t size_bytes = std::min(wanted.size_bytes, map.size_bytes - wanted.offset);
    const iovec into{wanted.into, size_bytes};
    const iovec from{map.data + wanted.offset, size_bytes};
    const ssize_t n = ::process_vm_readv(::getpid(), &into, 1, &from, 1, 0);
    return n < 0 ? -errno : n;
  }

 private:
  struct Map {
    std::byte* data = nullptr;
    uint64_t size_bytes = 0;
  };
  void unmap() {
    for (const Map& map : maps_)
      ::munmap(map.data, map.size_bytes);
  }
  std::vector<Map> maps_;
};

enum class ReadMode { direct, buffered, mapped };

const char* description_of(ReadMode mode) {
  switch (mode) {
    case ReadMode::direct:
      return "pread O_DIRECT";
    case ReadMode::buffered:
      return "pread buffered";
    case ReadMode::mapped:
      return "mmap";
  }
  return "";
}

class ThreadReader final : public FileReader {
 public:
  ThreadReader(FileSet files, ReadMode mode, uint32_t depth)
      : FileReader(
            std::move(files),
            description_of(mode),
            mode == ReadMode::direct ? kDirectAlignment : 1,
            depth),
        mode_(mode) {
    if (mode_ == ReadMode::mapped) maps_ = std::make_unique<MappedFiles>(files_);
    if (mode_ == ReadMode::buffered) {
      // Reading ahead on the kernel's own account would fill the page cache.
      for (uint32_t file = 0; file < files_.size(); ++file) {
        ::posix_fadvise(files_.fd(file), 0, 0, POSIX_FADV_RANDOM);
      }
    }
    threads_.reserve(depth);
    try {
      for (uint32_t i = 0; i < depth; ++i)
        threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      stop();
      fail(
          ErrorKind::device, "starting thread {} of {} for reading: {} (raise ulimit -u)",
          threads_.size() + 1, depth, error.what());
    }
  }
  ThreadReader(const ThreadReader&) = delete;
  ThreadReader& operator=(const ThreadReader&) = delete;

  ~ThreadReader() override { stop(); }

  void submit(const FileRead& read) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(read);
    }
    work_is_there_.notify_one();
  }

  void wait(std::vector<FileReadEnd>& ended) override {
    std::unique_lock lock(mutex_);
    read_has_ended_.wait(lock, [this] { return !ended_.empty(); });
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    work_is_there_.notify_all();
    for (std::thread& thread : threads_)
      thread.join();
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_is_there_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
      if (is_stopping_) return;
      const FileRead read = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const FileReadEnd end{read.tag, read_now(read)};
      lock.lock();
      ended_.push_back(end);
      read_has_ended_.notify_one();
    }
  }

  int64_t read_now(const FileRead& read) const {
    const int fd = files_.fd(read.file);
    const auto offset = static_cast<off_t>(read.offset);
    if (mode_ == ReadMode::mapped) {
      const int64_t n = maps_->read(read);
      struct stat status {};
      if (n < 0 && n != -EFAULT) return n;
      if (::fstat(fd, &status) != 0) return -errno;
      // A file that has shrunk goes on with zeros up to the end of its last page, and then faults.
      const bool is_whole = n > 0 && offset + n <= status.st_size;
      return is_whole ? n : ::pread(fd, read.into, read.size_bytes, offset);
    }
    const ssize_t n = ::pread(fd, read.into, read.size_bytes, offset);
    if (n < 0) return -errno;
    // The page cache must not become a hidden second copy of the model.
    if (mode_ == ReadMode::buffered) ::posix_fadvise(fd, offset, n, POSIX_FADV_DONTNEED);
    return n;
  }

  const ReadMode mode_;
  std::unique_ptr<MappedFiles> maps_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::condition_variable work_is_there_;
  std::condition_variable read_has_ended_;
  std::deque<FileRead> waiting_;
  std::vector<FileReadEnd> ended_;
  bool is_stopping_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace

FileSet FileSet::open(
    const std::vector<std::string>& paths,
    const std::vector<uint64_t>& expected_bytes,
    int flags,
    const std::vector<FileIdentity>& identities) {
  FileSet set;
  for (size_t i = 0; i < paths.size(); ++i) {
    File file;
    file.path = paths[i];
    file.fd = FileDescriptor(::open(paths[i].c_str(), O_RDONLY | O_CLOEXEC | flags));
    if (!file.fd.is_open()) {
      if (errno == EINVAL && flags != 0) return {};
      fail_errno(ErrorKind::model, errno, paths[i]);
    }
    const struct stat status = stat_file(file.fd.value(), paths[i]);
    file.size_bytes = static_cast<uint64_t>(status.st_size);
    file.identity = identity_of(file.fd.value(), paths[i], ErrorKind::storage);
    if (file.size_bytes != expected_bytes[i]) {
      fail(
          ErrorKind::model,
          "{}: expected {} bytes as its head was read, found {}: the file is being written or was "
          "replaced; start again when it is whole",
          paths[i], expected_bytes[i], file.size_bytes);
    }
    if (!identities.empty() && file.identity != identities[i]) {
      const FileIdentity& expected = identities[i];
      fail(
          ErrorKind::model,
          "{}: expected the file whose head was read (inode {}, modified {}.{:09}), found another "
          "(inode {}, modified {}.{:09}): it was replaced or written to; start again",
          paths[i], expected.inode, expected.modified_s, expected.modified_ns, file.identity.inode,
          file.identity.modified_s, file.identity.modified_ns);
    }
    set.files_.push_back(std::move(file));
  }
  return set;
}

void FileSet::check_unchanged() const {
  for (uint32_t file = 0; file < files_.size(); ++file)
    check_unchanged(file);
}

void FileSet::check_unchanged(uint32_t file) const {
  const File& known = files_[file];
  const struct stat status = stat_file(known.fd.value(), known.path);
  if (static_cast<uint64_t>(status.st_size) != known.size_bytes) {
    fail(
        ErrorKind::model,
        "{}: expected {} bytes as at the start, found {}: the file was changed while it is in use; "
        "put the whole file back and start again",
        known.path, known.size_bytes, status.st_size);
  }
  const FileIdentity now = identity_of(known.fd.value(), known.path, ErrorKind::storage);
  if (now != known.identity) {
    fail(
        ErrorKind::model,
        "{}: expected the modification time {}.{:09} as at the start, found {}.{:09}: the file was "
        "written to while it is in use; start again",
        known.path, known.identity.modified_s, known.identity.modified_ns, now.modified_s,
        now.modified_ns);
  }
}

uint64_t FileSet::current_bytes(uint32_t file) const {
  return static_cast<uint64_t>(stat_file(fd(file), path(file)).st_size);
}

std::string reader_source(const std::string& stream_source) {
  // These say where weights stay; what they do not hold is read as by itself.
  const bool is_of_memory = stream_source == "pinned" || stream_source == "registered";
  return is_of_memory ? "auto" : stream_source;
}

std::unique_ptr<FileReader> open_file_reader(const FileReaderOptions& options) {
  const std::string& source = options.source;
  if (source != "auto" && source != "direct" && source != "uring" && source != "pread" &&
      source != "mmap") {
    fail(
        ErrorKind::usage, "source: expected auto, direct, uring, pread or mmap, found \"{}\"",
        source);
  }
  const auto say = [&](const std::string& text) {
    log_text(options.warns ? LogLevel::warning : LogLevel::debug, text);
  };
  // More threads than this gain nothing on a disk and cost switches.
  constexpr uint32_t kMaxThreads = 8;
  const auto with_threads = [&](FileSet files, ReadMode mode) {
    return std::make_unique<ThreadReader>(
        std::move(files), mode, std::min(options.depth, kMaxThreads));
  };
  if (source == "mmap") {
    return with_threads(
        FileSet::open(options.paths, options.file_bytes, 0, options.identities), ReadMode::mapped);
  }

  FileSet files = FileSet::open(options.paths, options.file_bytes, O_DIRECT, options.identities);
  const bool is_direct = files.size() == options.paths.size() && can_read_direct(files);
  if (!is_direct) {
    if (source == "uring" || source == "direct") {
      fail(
          ErrorKind::device,
          "source {}: {}: the file system refuses O_DIRECT ({}); use source auto or mmap, or "
          "another file system",
          source, options.paths.front(), errno_text(EINVAL));
    }
    say(format(
        "{}: the file system refuses O_DIRECT ({}): weights are read with buffered pread",
        options.paths.front(), errno_text(EINVAL)));
    files = FileSet::open(options.paths, options.file_bytes, 0, options.identities);
    return with_threads(std::move(files), ReadMode::buffered);
  }
  if (source != "pread") {
    io_uring ring{};
    const int result = io_uring_queue_init(options.depth, &ring, 0);
    if (result == 0) {
      return std::make_unique<UringReader>(std::move(files), ring, options);
    }
    const char* hint = result == -EPERM || result == -ENOSYS
                           ? "; containers often forbid it: see their seccomp profile and "
                             "/proc/sys/kernel/io_uring_disabled"
                           : "";
    if (source == "uring") {
      fail(
          ErrorKind::device, "source uring: io_uring_setup: {}{}; or use source auto or pread",
          errno_text(-result), hint);
    }
    say(format(
        "io_uring_setup: {}{}: weights are read with pread threads", errno_text(-result), hint));
  }
  return with_threads(std::move(files), ReadMode::direct);
}

}  // namespace nightsweep
