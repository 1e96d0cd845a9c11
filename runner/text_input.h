// Whole input texts of the commands that look inside.
#pragma once

#include <string>

namespace nightsweep {

// A file, or stdin for "-". Throws Error(input).
std::string read_text_input(const std::string& path);

}  // namespace nightsweep
