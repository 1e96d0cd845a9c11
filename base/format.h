// Text with values in it: format("{} of {}", a, b), checked at compile time.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace nightsweep {

struct Format {
  template <typename... Args>
  std::string operator()(fmt::format_string<Args...> text, Args&&... args) const {
    return fmt::format(text, std::forward<Args>(args)...);
  }
};

// An object, so that a call with a std::string in it does not find std::format as well: a library
// that has <format> would make it ambiguous.
inline constexpr Format format;  // NOLINT(readability-identifier-naming)

}  // namespace nightsweep
