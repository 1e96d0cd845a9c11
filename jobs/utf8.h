// Bytes made fit to show: invalid UTF-8 replaced, control characters escaped, long text cut.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nightsweep {

// Length of the well-formed UTF-8 character at the start of `bytes`, else 0.
size_t utf8_length(std::string_view bytes);

// Each maximal part of a broken character becomes one U+FFFD (Unicode 3.9, as Python does it).
std::string lossy_utf8(std::string_view bytes);

// For messages: one line, valid UTF-8, cut with "..." after about `max_bytes`.
std::string printable(std::string_view bytes, size_t max_bytes = 60);

}  // namespace nightsweep
