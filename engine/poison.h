// What memory of a stream is filled with where nothing has been read yet, in debug builds: NaN as
// f16, bf16 and f32, and so as the scales of quantised blocks. A read that is missing shows as NaN.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace nightsweep {

inline constexpr std::byte kPoison{0xFF};
#ifdef NDEBUG
inline constexpr bool kPoisonsReleasedSpace = false;
#else
inline constexpr bool kPoisonsReleasedSpace = true;
#endif

inline void poison(std::span<std::byte> space) {
  if constexpr (kPoisonsReleasedSpace) std::fill(space.begin(), space.end(), kPoison);
}

}  // namespace nightsweep
