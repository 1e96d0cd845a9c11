#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "jobs/jsonl.h"

namespace nightsweep {

namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
constexpr size_t kLongestMarkBytes = 4;
constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";

struct ForeignMark {
  std::string_view bytes;
  const char* encoding;
};
// UTF-32 first: its little-endian mark begins with that of UTF-16.
constexpr ForeignMark kForeignMarks[] = {
    {std::string_view("\xFF\xFE\0\0", 4), "UTF-32LE"},
    {std::string_view("\0\0\xFE\xFF", 4), "UTF-32BE"},
    {std::string_view("\xFF\xFE", 2), "UTF-16LE"},
    {std::string_view("\xFE\xFF", 2), "UTF-16BE"},
};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

LineReader::LineReader(int fd, std::string path, size_t max_line_bytes)
    : fd_(fd), path_(std::move(path)), max_line_bytes_(max_line_bytes) {}

// Reads one piece behind what is kept; false at the end of the file.
bool LineReader::fill() {
  if (at_end_) return false;
  buffer_.erase(0, start_);
  scanned_ -= start_;
  start_ = 0;
  size_t kept = buffer_.size();
  buffer_.resize(kept + kReadBytes);
  ssize_t count = 0;
  while ((count = ::read(fd_, buffer_.data() + kept, kReadBytes)) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) fail_errno(ErrorKind::input, errno, path_);
    // Standard input may have been made non-blocking by whoever shares it with us.
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, -1) < 0 && errno != EINTR) fail_errno(ErrorKind::input, errno, path_);
  }
  buffer_.resize(kept + static_cast<size_t>(count));
  if (count == 0) {
    at_end_ = true;
    return false;
  }
  if (observer_) observer_(std::string_view(buffer_).substr(kept));
  return true;
}

void LineReader::skip_byte_order_mark() {
  at_start_ = false;
  while (buffer_.size() < kLongestMarkBytes && fill()) {
  }
  std::string_view head = buffer_;
  for (const ForeignMark& mark : kForeignMarks) {
    if (head.substr(0, mark.bytes.size()) == mark.bytes) {
      fail(
          ErrorKind::input,
          "{}:1: expected UTF-8 text, found {} (its byte order mark); convert it with: "
          "iconv -f {} -t UTF-8",
          path_, mark.encoding, mark.encoding);
    }
  }
  if (head.substr(0, kUtf8Mark.size()) == kUtf8Mark) start_ = scanned_ = kUtf8Mark.size();
}

// The next line without its LF, valid until the buffer changes; false at the end.
bool LineReader::take_raw_line(std::string_view& text, bool& too_long) {
  too_long = false;
  bool has_bytes = false;
  while (true) {
    const void* found = std::memchr(buffer_.data() + scanned_, '\n', buffer_.size() - scanned_);
    if (found != nullptr) {
      size_t end = static_cast<size_t>(static_cast<const char*>(found) - buffer_.data());
      text = std::string_view(buffer_).substr(start_, end - start_);
      start_ = scanned_ = end + 1;
      return true;
    }
    scanned_ = buffer_.size();
    has_bytes = has_bytes || scanned_ > start_;
    // One more may be a CR that belongs to the line end.
    if (scanned_ - start_ > max_line_bytes_ + 1) too_long = true;
    if (too_long) start_ = scanned_;
    if (!fill()) break;
  }
  text = std::string_view(buffer_).substr(start_);
  start_ = scanned_ = buffer_.size();
  return has_bytes;
}

std::optional<LineReader::Line> LineReader::next() {
  if (at_start_) skip_byte_order_mark();
  std::string_view text;
  bool too_long = false;
  while (take_raw_line(text, too_long)) {
    ++number_;
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    too_long = too_long || text.size() > max_line_bytes_;
    if (too_long) return Line{.text = {}, .number = number_, .too_long = true};
    if (!is_blank(text)) return Line{.text = text, .number = number_, .too_long = false};
  }
  return std::nullopt;
}

}  // namespace nightsweep
