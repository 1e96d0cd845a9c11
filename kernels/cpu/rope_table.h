// Cosines and sines of a step's positions, kept while the step asks for the same ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace nightsweep::cpu {

class RopeTable {
 public:
  // Afterwards cosines(row) and sines(row) hold (n_rot / 2) values for positions[row].
  void prepare(const RopeShape& shape, std::span<const uint32_t> positions);

  const float* cosines(size_t row) const { return cosines_.data() + row * n_pairs(); }
  const float* sines(size_t row) const { return sines_.data() + row * n_pairs(); }

 private:
  size_t n_pairs() const { return frequencies_.size(); }

  std::vector<uint32_t> positions_;
  std::vector<double> frequencies_;
  float magnitude_ = 0.0F;
  std::vector<float> cosines_;  // (positions, pairs)
  std::vector<float> sines_;
};

}  // namespace nightsweep::cpu
