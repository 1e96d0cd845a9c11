// What Python's str can do, on marked strings: filters and methods share it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/marked_string.h"

namespace nightsweep::jinja {

// str.split(separator, limit); a null separator means runs of white space. limit < 0: none.
std::vector<MarkedString>
split(const MarkedString& text, const std::string_view* separator, int64_t limit);
std::vector<MarkedString>
split_right(const MarkedString& text, const std::string_view* separator, int64_t limit);
std::vector<MarkedString> split_lines(const MarkedString& text, bool keep_ends);
MarkedString strip(const MarkedString& text, const std::string_view* chars, bool left, bool right);
enum class Align : uint8_t { left, right, center };
// Padded to `width` code points.
MarkedString pad(const MarkedString& text, int64_t width, Align align, std::string_view fill);

}  // namespace nightsweep::jinja
