#include "runner/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace nightsweep {

namespace {

class WholeFile : public DataSink {
 public:
  explicit WholeFile(const std::string& path) : file_(path) {}
  void write(std::string_view data) override { file_.write(data); }
  void commit() override { file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace

void Stdout::write(std::string_view data) {
  while (!data.empty()) {
    ssize_t n = ::write(STDOUT_FILENO, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) throw ClosedPipe{};
    if (n < 0) fail_errno(ErrorKind::storage, errno, "stdout");
    data.remove_prefix(static_cast<size_t>(n));
  }
}

std::unique_ptr<DataSink> open_output(const std::string& path) {
  if (path.empty() || path == "-") return std::make_unique<Stdout>();
  return std::make_unique<WholeFile>(path);
}

void refuse_same_file(const std::string& output, const std::string& other, std::string_view what) {
  if (output.empty() || output == "-" || other == "-") return;
  if (output == other || is_same_file(output, other)) {
    fail(ErrorKind::usage, "-o {}: this is {} {}; choose another output file", output, what, other);
  }
}

void check_output(const std::string& path) {
  if (!path.empty() && path != "-") AtomicFile::check(path);
}

void write_message(std::string_view text) {
  while (!text.empty()) {
    ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody is left to be told
    text.remove_prefix(static_cast<size_t>(n));
  }
}

bool color_wanted(ColorChoice choice, int fd) {
  if (choice != ColorChoice::automatic) return choice == ColorChoice::always;
  const char* no_color = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe): before threads
  return (no_color == nullptr || *no_color == '\0') && ::isatty(fd) != 0;
}

}  // namespace nightsweep
