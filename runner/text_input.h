// Whole input texts of the commands that look inside.
#pragma once

#include <string>
#include <string_view>

namespace nightsweep {

// A file, or stdin for "-". Throws Error(input).
std::string read_text_input(const std::string& path);

// A line of JSON Lines without its line end and, in the first, a byte order mark. Empty for a line
// of blanks.
std::string_view line_content(std::string_view line, bool is_first);

}  // namespace nightsweep
