// Which weights a kernel may not read before the kernels in flight are over.
#pragma once

#include <algorithm>
#include <cstddef>

namespace nightsweep::cuda {

// Where weights were packed since the stream was last waited for: one range around all of them,
// which in a sweep is the scratch of the slices that stream.
class FreshWeights {
 public:
  void add(const std::byte* at, size_t size_bytes) {
    begin_ = begin_ == end_ ? at : std::min(begin_, at);
    end_ = std::max(end_, at + size_bytes);
  }
  // Any byte of it.
  bool holds(const std::byte* at, size_t size_bytes) const {
    return begin_ < at + size_bytes && at < end_;
  }
  void clear() { begin_ = end_ = nullptr; }

 private:
  const std::byte* begin_ = nullptr;
  const std::byte* end_ = nullptr;
};

}  // namespace nightsweep::cuda
