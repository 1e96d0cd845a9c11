// Sine and cosine in double, the same arithmetic on every device: angles of rotary positions reach
// 131,072 radians and more, where single precision has lost them. Plain arithmetic in a fixed
// order, because a library's own result may change with its version and with the CPU. Compiled by
// nvcc as well.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
  #define NIGHTSWEEP_ON_ALL_DEVICES __host__ __device__
#else
  #define NIGHTSWEEP_ON_ALL_DEVICES
#endif

namespace nightsweep {

struct SinCos {
  double sine;
  double cosine;
};

// Of angles from 0 up to 2^20, to 1e-15.
NIGHTSWEEP_ON_ALL_DEVICES inline SinCos sin_cos(double angle) {
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

}  // namespace nightsweep

#undef NIGHTSWEEP_ON_ALL_DEVICES
