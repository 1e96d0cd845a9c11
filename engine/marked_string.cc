#include "engine/marked_string.h"

#include <algorithm>

namespace nightsweep {

void MarkedString::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!input_.empty() && input_.back().end == begin) {
    input_.back().end = end;
  } else {
    input_.push_back({begin, end});
  }
}

void MarkedString::append(std::string_view bytes, bool is_input) {
  size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (is_input) mark(begin, bytes_.size());
}

void MarkedString::append(const MarkedString& other, size_t begin, size_t end) {
  size_t shift = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  auto first = std::partition_point(
      other.input_.begin(), other.input_.end(), [&](Range range) { return range.end <= begin; });
  for (auto it = first; it != other.input_.end() && it->begin < end; ++it) {
    mark(shift + std::max(it->begin, begin) - begin, shift + std::min(it->end, end) - begin);
  }
}

MarkedString MarkedString::part(size_t begin, size_t end) const {
  MarkedString result;
  result.append(*this, begin, end);
  return result;
}

}  // namespace nightsweep
