// Text that knows which of its bytes came from the input.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nightsweep {

class MarkedString {
 public:
  struct Range {
    size_t begin;
    size_t end;
  };

  MarkedString() = default;
  explicit MarkedString(std::string bytes, bool is_input = false) : bytes_(std::move(bytes)) {
    if (is_input && !bytes_.empty()) input_.push_back({0, bytes_.size()});
  }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Sorted, not empty, not touching.
  const std::vector<Range>& input() const { return input_; }
  bool has_input() const { return !input_.empty(); }

  void append(std::string_view bytes, bool is_input);
  void append(const MarkedString& other) { append(other, 0, other.size()); }
  void append(const MarkedString& other, size_t begin, size_t end);
  MarkedString part(size_t begin, size_t end) const;

 private:
  void mark(size_t begin, size_t end);

  std::string bytes_;
  std::vector<Range> input_;
};

// Tells for rising positions of a string whether they are input.
class MarkCursor {
 public:
  explicit MarkCursor(const MarkedString& text) : ranges_(text.input()) {}
  // REQUIRES: not below the position of the call before.
  bool is_input(size_t position) {
    while (next_ < ranges_.size() && ranges_[next_].end <= position)
      ++next_;
    return next_ < ranges_.size() && ranges_[next_].begin <= position;
  }

 private:
  const std::vector<MarkedString::Range>& ranges_;
  size_t next_ = 0;
};

}  // namespace nightsweep
