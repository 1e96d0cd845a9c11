#include "engine/file_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<std::byte, Free>;
Block aligned_block(size_t size_bytes) {
  return Block(static_cast<std::byte*>(
      std::aligned_alloc(kDirectAlignment, align_up(size_bytes, kDirectAlignment))));
}

// Written to the disk, so that the page cache may drop it.
std::string write_file(const std::string& path, size_t size_bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string content(size_bytes, '\0');
  for (char& c : content)
    c = static_cast<char>(random());
  const FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644));
  write_fully(fd.value(), content, path);
  ::fsync(fd.value());
  return content;
}

FileReaderOptions options_for(const std::string& path, const std::string& source) {
  return {
      .paths = {path},
      .file_bytes = {std::filesystem::file_size(path)},
      .source = source,
      .depth = 4};
}

// The reader, or null where io_uring or O_DIRECT is not to be had here.
std::unique_ptr<FileReader> try_open(const FileReaderOptions& options) {
  try {
    return open_file_reader(options);
  } catch (const Error& error) {
    if ((options.source == "uring" || options.source == "direct") &&
        error.kind() == ErrorKind::device)
      return nullptr;
    throw;
  }
}

// Makes a system call fail in this process, where argument 2 has all bits of `mask` set.
void forbid(uint32_t call, int error_number, uint32_t mask) {
  const std::array<sock_filter, 7> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, mask, 0, 1),
      BPF_STMT(
          BPF_RET | BPF_K,
          SECCOMP_RET_ERRNO | (static_cast<uint32_t>(error_number) & SECCOMP_RET_DATA)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{program.size(), const_cast<sock_filter*>(program.data())};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    ::_exit(99);
  }
}
void forbid_io_uring() {
  forbid(__NR_io_uring_setup, EPERM, 0);
}
void forbid_direct_reads() {
  forbid(__NR_openat, EINVAL, O_DIRECT);
}

// For EXPECT_EXIT: 0 when the reader that is found is the expected one.
[[noreturn]] void
exit_as(const std::string& path, const std::string& source, std::string_view name) {
  try {
    ::_exit(open_file_reader(options_for(path, source))->description() == name ? 0 : 1);
  } catch (const Error& error) {
    const std::string text = std::string(error.what()) + "\n";
    write_fully(STDERR_FILENO, text, "stderr");
    ::_exit(static_cast<int>(error.kind()));
  }
}

constexpr size_t kPiece = 8 * kDirectAlignment;

class FileReaderOfSource : public testing::TestWithParam<const char*> {
 protected:
  TemporaryFolder folder_;
};

// The whole file, with many reads in flight; the bytes and the ends of the reads must be right.
void expect_whole_file(FileReader& reader, const std::string& content, std::byte* into) {
  uint64_t next = 0;
  size_t n_in_flight = 0;
  uint64_t n_read = 0;
  std::vector<FileReadEnd> ended;
  while (next < content.size() || n_in_flight > 0) {
    for (; next < content.size() && n_in_flight < reader.depth(); ++n_in_flight, next += kPiece) {
      reader.submit({0, next, kPiece, into + next, next});
    }
    ended.clear();
    reader.wait(ended);
    ASSERT_FALSE(ended.empty());
    n_in_flight -= ended.size();
    for (const FileReadEnd& end : ended) {
      // The last one ends with the file.
      EXPECT_EQ(
          static_cast<uint64_t>(end.result), std::min<uint64_t>(kPiece, content.size() - end.tag));
      n_read += static_cast<uint64_t>(end.result);
    }
  }
  EXPECT_EQ(n_read, content.size());
  EXPECT_EQ(std::memcmp(into, content.data(), content.size()), 0);
}

TEST_P(FileReaderOfSource, reads_the_bytes_of_the_file_with_many_in_flight) {
  const std::string path = folder_.path("file");
  const std::string content = write_file(path, 300'000, 1);
  const std::unique_ptr<FileReader> reader = try_open(options_for(path, GetParam()));
  if (reader == nullptr) GTEST_SKIP() << "SKIPPED: no io_uring with O_DIRECT here";
  const Block into = aligned_block(content.size() + kPiece);
  expect_whole_file(*reader, content, into.get());
}

// Into memory that is registered whole, in pieces in which reads lie and over whose ends they go,
// and in part; each time other memory, and the reads end at the end of the file.
TEST_P(FileReaderOfSource, reads_the_same_bytes_into_registered_memory) {
  const std::string path = folder_.path("file");
  const std::string content = write_file(path, 300'000, 1);
  for (const uint64_t piece_bytes : {uint64_t{1} << 30, 2 * kPiece, kPiece * 3 / 2}) {
    FileReaderOptions options = options_for(path, GetParam());
    options.registered_piece_bytes = piece_bytes;
    const std::unique_ptr<FileReader> reader = try_open(options);
    if (reader == nullptr) GTEST_SKIP() << "SKIPPED: no io_uring with O_DIRECT here";
    const size_t size_bytes = content.size() / kPiece * kPiece + kPiece;
    for (const size_t registered_bytes : {size_bytes, size_bytes / 2}) {
      const Block into = aligned_block(size_bytes);
      const RegisteredMemory registered(*reader, {into.get(), registered_bytes});
      EXPECT_EQ(registered.why_not(), "");
      expect_whole_file(*reader, content, into.get());
    }
    const Block into = aligned_block(size_bytes);
    expect_whole_file(*reader, content, into.get());
  }
}

TEST_P(FileReaderOfSource, end_of_file_is_a_result_of_zero) {
  const std::string path = folder_.path("file");
  write_file(path, 8192, 1);
  const std::unique_ptr<FileReader> reader = try_open(options_for(path, GetParam()));
  if (reader == nullptr) GTEST_SKIP() << "SKIPPED: no io_uring with O_DIRECT here";
  const Block into = aligned_block(4096);
  reader->submit({0, 8192, 4096, into.get(), 5});
  std::vector<FileReadEnd> ended;
  reader->wait(ended);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].tag, 5U);
  EXPECT_EQ(ended[0].result, 0);
}

TEST_P(FileReaderOfSource, can_be_destroyed_with_reads_in_flight) {
  const std::string path = folder_.path("file");
  write_file(path, 4 << 20, 1);
  const Block into = aligned_block(4 << 20);
  for (int round = 0; round < 20; ++round) {
    const std::unique_ptr<FileReader> reader = try_open(options_for(path, GetParam()));
    if (reader == nullptr) GTEST_SKIP() << "SKIPPED: no io_uring with O_DIRECT here";
    for (uint64_t i = 0; i < 4; ++i) {
      reader->submit({0, i << 20, 1 << 20, into.get() + (i << 20), i});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sources,
    FileReaderOfSource,
    testing::Values("auto", "direct", "uring", "pread", "mmap"));

class FileReaderTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_.path("model");
};

TEST_F(FileReaderTest, a_forbidden_io_uring_falls_back_to_threads_and_says_so) {
  write_file(path_, 10'000, 1);
  EXPECT_EXIT(
      {
        forbid_io_uring();
        exit_as(path_, "auto", "pread O_DIRECT");
      },
      testing::ExitedWithCode(0), "io_uring_setup: Operation not permitted.*pread threads");
  EXPECT_EXIT(
      {
        forbid_io_uring();
        exit_as(path_, "uring", "");
      },
      testing::ExitedWithCode(static_cast<int>(ErrorKind::device)),
      "source uring: io_uring_setup: Operation not permitted");
}

// Other pages come to the address, and only a read that looks the memory up finds them.
TEST_F(FileReaderTest, the_kernel_holds_the_pages_of_registered_memory_until_it_is_forgotten) {
  const std::string content = write_file(path_, kPiece, 1);
  const std::unique_ptr<FileReader> reader = try_open(options_for(path_, "uring"));
  if (reader == nullptr) GTEST_SKIP() << "SKIPPED: no io_uring with O_DIRECT here";
  const auto map = [](void* at, int flags) {
    return static_cast<std::byte*>(
        ::mmap(at, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0));
  };
  std::byte* const memory = map(nullptr, 0);
  std::vector<FileReadEnd> ended;
  const auto read = [&] {
    reader->submit({0, 0, kPiece, memory, 0});
    reader->wait(ended);
    return std::memcmp(memory, content.data(), kPiece) == 0;
  };
  {
    const RegisteredMemory registered(*reader, {memory, kPiece});
    EXPECT_EQ(registered.why_not(), "");
    map(memory, MAP_FIXED);
    EXPECT_FALSE(read());
  }
  EXPECT_TRUE(read());
  {
    const RegisteredMemory registered(*reader, {memory, kPiece});
    EXPECT_TRUE(read());
  }
  for (const FileReadEnd& end : ended)
    EXPECT_EQ(end.result, static_cast<int64_t>(kPiece));
  ::munmap(memory, kPiece);
}

// Child of the test below: reads into memory that the kernel does not register.
[[noreturn]] void exit_after_refused_registration(
    const std::string& path,
    const std::string& content) {
  forbid(__NR_io_uring_register, ENOMEM, 0);
  const std::unique_ptr<FileReader> reader = open_file_reader(options_for(path, "uring"));
  const Block into = aligned_block(content.size() + kPiece);
  for (int round = 0; round < 2; ++round) {
    const RegisteredMemory registered(*reader, {into.get(), content.size()});
    if (registered.why_not().find("Cannot allocate memory") == std::string::npos) ::_exit(1);
    std::memset(into.get(), 0, content.size());
    expect_whole_file(*reader, content, into.get());
  }
  ::_exit(testing::Test::HasFailure() ? 2 : 0);
}

TEST_F(FileReaderTest, memory_that_is_not_registered_is_read_into_all_the_same_and_said_so) {
  const std::string content = write_file(path_, 300'000, 1);
  if (try_open(options_for(path_, "uring")) == nullptr) {
    GTEST_SKIP() << "SKIPPED: no io_uring with O_DIRECT here";
  }
  EXPECT_EXIT(
      exit_after_refused_registration(path_, content), testing::ExitedWithCode(0),
      "io_uring_register_files: Cannot allocate memory.*\n"
      ".*io_uring_register_buffers of 293.*: Cannot allocate memory .*ulimit -l is [^\n]*\n$");
}

// What no kernel pins: pages of a file that would have to be written to.
TEST_F(FileReaderTest, memory_that_cannot_be_pinned_is_read_into_all_the_same) {
  const std::string content = write_file(path_, kPiece, 1);
  const std::unique_ptr<FileReader> reader = try_open(options_for(path_, "uring"));
  if (reader == nullptr) GTEST_SKIP() << "SKIPPED: no io_uring with O_DIRECT here";
  const std::string other = folder_.path("other");
  write_file(other, kPiece, 2);
  const FileDescriptor fd(::open(other.c_str(), O_RDWR | O_CLOEXEC));
  auto* const memory = static_cast<std::byte*>(
      ::mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED, fd.value(), 0));
  ASSERT_NE(memory, MAP_FAILED);
  {
    const RegisteredMemory registered(*reader, {memory, kPiece});
    if (registered.why_not().empty()) {
      ::munmap(memory, kPiece);
      GTEST_SKIP() << "SKIPPED: this kernel or file system has file pages pinned";
    }
    EXPECT_NE(registered.why_not().find("io_uring_register_buffers"), std::string::npos);
    std::vector<FileReadEnd> ended;
    reader->submit({0, 0, kPiece, memory, 0});
    reader->wait(ended);
    EXPECT_EQ(std::memcmp(memory, content.data(), kPiece), 0);
  }
  ::munmap(memory, kPiece);
}

TEST_F(FileReaderTest, a_file_system_without_o_direct_is_read_buffered_and_said_so) {
  write_file(path_, 10'000, 1);
  for (const char* source : {"auto", "pread"}) {
    EXPECT_EXIT(
        {
          forbid_direct_reads();
          exit_as(path_, source, "pread buffered");
        },
        testing::ExitedWithCode(0), "model: the file system refuses O_DIRECT.*buffered pread");
  }
  for (const char* source : {"uring", "direct"}) {
    EXPECT_EXIT(
        {
          forbid_direct_reads();
          exit_as(path_, source, "");
        },
        testing::ExitedWithCode(static_cast<int>(ErrorKind::device)), "refuses O_DIRECT");
  }
}

TEST_F(FileReaderTest, a_mapping_that_may_not_be_copied_from_is_refused_at_once) {
  write_file(path_, 10'000, 1);
  EXPECT_EXIT(
      {
        forbid(__NR_process_vm_readv, EPERM, 0);
        exit_as(path_, "mmap", "");
      },
      testing::ExitedWithCode(static_cast<int>(ErrorKind::device)),
      "--source mmap: process_vm_readv: Operation not permitted");
}

// A touch of the mapping would be a SIGBUS.
TEST_F(FileReaderTest, a_mapped_file_that_has_shrunk_ends_where_it_ends) {
  const std::string content = write_file(path_, 100'000, 1);
  const std::unique_ptr<FileReader> reader = open_file_reader(options_for(path_, "mmap"));
  std::filesystem::resize_file(path_, 20'000);
  const Block into = aligned_block(content.size());
  std::vector<FileReadEnd> ended;
  reader->submit({0, 8192, 40'000, into.get(), 1});
  reader->wait(ended);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].result, 20'000 - 8192);
  EXPECT_EQ(std::memcmp(into.get(), content.data() + 8192, 20'000 - 8192), 0);
  ended.clear();
  reader->submit({0, 65536, 4096, into.get(), 2});
  reader->wait(ended);
  EXPECT_EQ(ended[0].result, 0);
}

// Child of the test below: how many of the file's pages the page cache holds after it was read.
[[noreturn]] void exit_with_cached_pages(const std::string& path, size_t size_bytes) {
  forbid_direct_reads();
  const std::unique_ptr<FileReader> reader = open_file_reader(options_for(path, "pread"));
  const Block into = aligned_block(size_bytes);
  reader->submit({0, 0, size_bytes, into.get(), 0});
  std::vector<FileReadEnd> ended;
  reader->wait(ended);
  void* map = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, reader->files().fd(0), 0);
  std::vector<unsigned char> pages(size_bytes / 4096);
  if (map == MAP_FAILED || ::mincore(map, size_bytes, pages.data()) != 0) ::_exit(99);
  size_t n_cached = 0;
  for (unsigned char page : pages)
    n_cached += page & 1U;
  ::_exit(n_cached * 20 > pages.size() ? 1 : 0);
}

TEST_F(FileReaderTest, buffered_reads_leave_nothing_in_the_page_cache) {
  constexpr size_t kBytes = 8 << 20;
  struct statfs status {};
  write_file(path_, kBytes, 1);
  if (::statfs(path_.c_str(), &status) != 0 || status.f_type == TMPFS_MAGIC) {
    GTEST_SKIP() << "SKIPPED: a tmpfs is nothing but page cache";
  }
  EXPECT_EXIT(exit_with_cached_pages(path_, kBytes), testing::ExitedWithCode(0), "");
}

TEST_F(FileReaderTest, an_unknown_source_is_refused) {
  write_file(path_, 4096, 1);
  try {
    open_file_reader(options_for(path_, "floppy"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(
        error.what(), "source: expected auto, direct, uring, pread or mmap, found \"floppy\"");
  }
}

TEST_F(FileReaderTest, a_file_that_is_not_what_its_head_said_is_refused) {
  write_file(path_, 4096, 1);
  FileReaderOptions options = options_for(path_, "pread");
  options.file_bytes = {8192};
  try {
    open_file_reader(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::model);
    EXPECT_NE(std::string(error.what()).find("expected 8192 bytes"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("found 4096"), std::string::npos);
  }
  options.paths = {folder_.path("missing")};
  try {
    open_file_reader(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::model);
    EXPECT_NE(std::string(error.what()).find("missing"), std::string::npos);
  }
}

TEST_F(FileReaderTest, another_file_of_the_same_name_and_size_is_refused) {
  write_file(path_, 4096, 1);
  for (const char* source : {"auto", "pread", "mmap"}) {
    FileReaderOptions options = options_for(path_, source);
    options.identities = {
        identity_of(open_for_reading(path_, ErrorKind::model).value(), path_, ErrorKind::model)};
    open_file_reader(options);
    const std::string other = folder_.path("other");
    write_file(other, 4096, 2);
    std::filesystem::rename(other, path_);
    EXPECT_MODEL_ERROR(open_file_reader(options), path_ + ": expected the file whose head");
  }
}

TEST_F(FileReaderTest, a_change_of_size_or_time_is_noticed) {
  write_file(path_, 4096, 1);
  const FileSet files = FileSet::open({path_}, {4096}, 0);
  files.check_unchanged();
  const auto before = std::filesystem::last_write_time(path_);
  std::filesystem::last_write_time(path_, before + std::chrono::seconds(3));
  EXPECT_THROW(files.check_unchanged(), Error);
  std::filesystem::last_write_time(path_, before);
  files.check_unchanged();
  std::filesystem::resize_file(path_, 4000);
  try {
    files.check_unchanged();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::model);
    EXPECT_NE(
        std::string(error.what()).find("expected 4096 bytes as at the start, found 4000"),
        std::string::npos);
  }
}

}  // namespace
}  // namespace nightsweep
