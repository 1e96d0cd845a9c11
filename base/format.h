// Text with values in it: format("{} of {}", a, b), checked at compile time.
#pragma once

#include <fmt/format.h>

namespace nightsweep {

using fmt::format;

}  // namespace nightsweep
