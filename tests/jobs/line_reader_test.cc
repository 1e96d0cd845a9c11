#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "jobs/jsonl.h"

namespace nightsweep {
namespace {

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }
  FileDescriptor read_end;
  FileDescriptor write_end;
};

struct Seen {
  std::string text;
  uint64_t number = 0;
  bool too_long = false;
  bool operator==(const Seen&) const = default;
};

void PrintTo(const Seen& seen, std::ostream* out) {
  *out << seen.number << (seen.too_long ? " too long" : "") << ": " << seen.text;
}

// Feeds the bytes through a pipe, `piece` at a time.
std::vector<Seen>
lines_of(std::string_view bytes, size_t max_line_bytes = 1000, size_t piece = 1 << 20) {
  Pipe pipe;
  std::thread writer([&] {
    for (size_t at = 0; at < bytes.size(); at += piece) {
      write_fully(pipe.write_end.value(), bytes.substr(at, piece), "pipe");
    }
    pipe.write_end.close();
  });
  LineReader reader(pipe.read_end.value(), "in.jsonl", max_line_bytes);
  std::string observed;
  reader.on_bytes([&](std::string_view part) { observed += part; });
  std::vector<Seen> lines;
  while (auto line = reader.next())
    lines.push_back({std::string(line->text), line->number, line->too_long});
  EXPECT_FALSE(reader.next().has_value());
  writer.join();
  EXPECT_EQ(observed, bytes);
  return lines;
}

std::string failure_of(std::string_view bytes) {
  Pipe pipe;
  write_fully(pipe.write_end.value(), bytes, "pipe");
  pipe.write_end.close();
  LineReader reader(pipe.read_end.value(), "in.jsonl", 1000);
  try {
    while (reader.next()) {
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "";
}

TEST(LineReader, line_ends_of_both_kinds_and_none_at_the_end) {
  std::vector<Seen> expected{{"a", 1}, {"b", 2}, {"c", 3}};
  EXPECT_EQ(lines_of("a\nb\nc\n"), expected);
  EXPECT_EQ(lines_of("a\r\nb\r\nc\r\n"), expected);
  EXPECT_EQ(lines_of("a\nb\r\nc"), expected);
}

TEST(LineReader, blank_lines_are_skipped_and_counted) {
  std::vector<Seen> expected{{"a", 2}, {" b ", 5}};
  EXPECT_EQ(lines_of("\na\n \t \n\r\n b \n\n  "), expected);
  EXPECT_TRUE(lines_of("").empty());
  EXPECT_TRUE(lines_of("\n\r\n \n").empty());
}

TEST(LineReader, other_white_space_is_not_blank) {
  EXPECT_EQ(lines_of("\v\n\f\n\xC2\xA0\n").size(), 3u);
  EXPECT_EQ(lines_of(std::string_view("\0\n", 2)).size(), 1u);
}

TEST(LineReader, a_lone_carriage_return_ends_no_line) {
  std::vector<Seen> expected{{"a\rb", 1}};
  EXPECT_EQ(lines_of("a\rb\n"), expected);
}

TEST(LineReader, a_byte_order_mark_is_stripped_at_the_start_alone) {
  std::vector<Seen> expected{
      {"a", 1},
      {"\xEF\xBB\xBF"
       "b",
       2}};
  EXPECT_EQ(
      lines_of("\xEF\xBB\xBF"
               "a\n\xEF\xBB\xBF"
               "b\n"),
      expected);
  EXPECT_TRUE(lines_of("\xEF\xBB\xBF").empty());
  EXPECT_EQ(lines_of("\xEF\xBB").size(), 1u);
}

TEST(LineReader, other_encodings_are_named_with_the_remedy) {
  EXPECT_EQ(
      failure_of(std::string_view("\xFF\xFE{\0", 4)),
      "in.jsonl:1: expected UTF-8 text, found UTF-16LE (its byte order mark); convert it with: "
      "iconv -f UTF-16LE -t UTF-8");
  EXPECT_NE(failure_of(std::string_view("\xFE\xFF\0{", 4)).find("UTF-16BE"), std::string::npos);
  EXPECT_NE(failure_of("\xFF\xFE").find("UTF-16LE"), std::string::npos);
  EXPECT_NE(failure_of(std::string_view("\xFF\xFE\0\0", 4)).find("UTF-32LE"), std::string::npos);
  EXPECT_NE(failure_of(std::string_view("\0\0\xFE\xFF", 4)).find("UTF-32BE"), std::string::npos);
}

TEST(LineReader, the_pieces_of_a_pipe_change_nothing) {
  std::string bytes = "\xEF\xBB\xBF{\"a\":1}\r\n\r\n\xC3\xA4\nlonger than the others\r\n\nend";
  auto whole = lines_of(bytes, 12);
  EXPECT_EQ(whole.size(), 4u);
  for (size_t piece = 1; piece <= 5; ++piece) {
    EXPECT_EQ(lines_of(bytes, 12, piece), whole) << piece;
  }
}

TEST(LineReader, a_line_beyond_the_limit_is_flagged_and_the_next_is_read) {
  std::string ten(10, 'x');
  std::vector<Seen> fits{{ten, 1}, {"b", 2}};
  EXPECT_EQ(lines_of(ten + "\nb", 10), fits);
  EXPECT_EQ(lines_of(ten + "\r\nb", 10), fits);
  std::vector<Seen> too_long{{"", 1, true}, {"b", 2}};
  EXPECT_EQ(lines_of(ten + "x\nb", 10), too_long);
  EXPECT_EQ(lines_of(ten + "x\r\nb", 10), too_long);
  EXPECT_EQ(lines_of(std::string(1 << 20, 'x') + "\nb", 10), too_long);
  std::vector<Seen> last{{"a", 1}, {"", 2, true}};
  EXPECT_EQ(lines_of("a\n" + ten + "x", 10), last);
  EXPECT_EQ(lines_of("a\n" + std::string(1 << 20, 'x'), 10), last);
}

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(LineReader, a_line_of_100_mb_takes_no_memory) {
  Pipe pipe;
  std::thread writer([&] {
    std::string block(1 << 20, 'x');
    for (int i = 0; i < 100; ++i)
      write_fully(pipe.write_end.value(), block, "pipe");
    write_fully(pipe.write_end.value(), "\nb\n", "pipe");
    pipe.write_end.close();
  });
  long before = peak_kib();
  LineReader reader(pipe.read_end.value(), "in", 1 << 20);
  auto first = reader.next();
  auto second = reader.next();
  writer.join();
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(first->too_long);
  EXPECT_EQ(second->text, "b");
  EXPECT_LT(peak_kib() - before, 30 << 10);
}

TEST(LineReader, memory_does_not_grow_with_the_number_of_lines) {
  Pipe pipe;
  constexpr int kLines = 1000000;
  std::thread writer([&] {
    std::string block;
    for (int i = 0; i < 1000; ++i)
      block +=
          "{\"prompt\":\"a line of about one hundred bytes, which makes a file of 100 MB in all, "
          "more or less\"}\r\n";
    for (int i = 0; i < kLines / 1000; ++i)
      write_fully(pipe.write_end.value(), block, "pipe");
    pipe.write_end.close();
  });
  LineReader reader(pipe.read_end.value(), "in", 16 << 20);
  reader.next();
  long before = peak_kib();
  int n_lines = 1;
  while (reader.next())
    ++n_lines;
  writer.join();
  EXPECT_EQ(n_lines, kLines);
  EXPECT_LT(peak_kib() - before, 8 << 10);
}

TEST(LineReader, a_non_blocking_pipe_is_waited_for) {
  Pipe pipe;
  ::fcntl(pipe.read_end.value(), F_SETFL, O_NONBLOCK);
  LineReader reader(pipe.read_end.value(), "in", 100);
  std::thread writer([&] {
    ::usleep(20000);
    write_fully(pipe.write_end.value(), "late\n", "pipe");
    pipe.write_end.close();
  });
  auto line = reader.next();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->text, "late");
  writer.join();
}

TEST(LineReader, a_folder_is_an_input_error_that_names_it) {
  FileDescriptor folder(::open("/", O_RDONLY | O_DIRECTORY));
  LineReader reader(folder.value(), "some/folder", 100);
  try {
    reader.next();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_EQ(std::string(error.what()).substr(0, 11), "some/folder");
  }
}

}  // namespace
}  // namespace nightsweep
