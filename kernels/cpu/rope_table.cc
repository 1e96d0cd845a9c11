#include "kernels/cpu/rope_table.h"

#include <algorithm>

#include "kernels/sin_cos.h"

namespace nightsweep::cpu {

void RopeTable::prepare(const RopeShape& shape, std::span<const uint32_t> positions) {
  if (magnitude_ == shape.magnitude && std::ranges::equal(positions_, positions) &&
      std::ranges::equal(frequencies_, shape.frequencies)) {
    return;
  }
  positions_.assign(positions.begin(), positions.end());
  frequencies_.assign(shape.frequencies.begin(), shape.frequencies.end());
  magnitude_ = shape.magnitude;
  cosines_.resize(positions_.size() * n_pairs());
  sines_.resize(positions_.size() * n_pairs());
  size_t i = 0;
  for (const uint32_t position : positions_) {
    for (const double frequency : frequencies_) {
      const auto [sine, cosine] = sin_cos(static_cast<double>(position) * frequency);
      cosines_[i] = static_cast<float>(cosine * static_cast<double>(magnitude_));
      sines_[i] = static_cast<float>(sine * static_cast<double>(magnitude_));
      ++i;
    }
  }
}

}  // namespace nightsweep::cpu
