#include "kernels/cpu/rope_table.h"

#include <algorithm>
#include <cmath>

namespace nightsweep::cpu {

SinCos sin_cos(double angle) {
  // angle = n * pi/2 + r. The first two parts of pi/2 have 33 bits, so that their products
  // with n below 2^20 are exact (parts as in fdlibm's e_rem_pio2.c).
  constexpr double kTwoOverPi = 6.36619772367581382433e-01;
  constexpr double kHalfPi1 = 1.57079632673412561417e+00;
  constexpr double kHalfPi2 = 6.07710050630396597660e-11;
  constexpr double kHalfPi3 = 2.02226624879595063154e-21;
  const double n = std::floor(angle * kTwoOverPi + 0.5);
  const double r = angle - n * kHalfPi1 - n * kHalfPi2 - n * kHalfPi3;
  const double z = r * r;
  // Coefficients of fdlibm's k_sin.c and k_cos.c, for |r| <= pi/4.
  const double sine_tail =
      -1.66666666666666324348e-01 +
      z * (8.33333333332248946124e-03 +
           z * (-1.98412698298579493134e-04 +
                z * (2.75573137070700676789e-06 +
                     z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10))));
  const double cosine_tail =
      4.16666666666666019037e-02 +
      z * (-1.38888888888741095749e-03 +
           z * (2.48015872894767294178e-05 +
                z * (-2.75573143513906633035e-07 +
                     z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))));
  const double sine = r + r * z * sine_tail;
  const double cosine = 1.0 - (0.5 * z - z * z * cosine_tail);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

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
