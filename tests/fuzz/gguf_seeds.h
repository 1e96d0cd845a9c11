// Small heads, sound and not, that the fuzzer and the systematic mutations start from.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace nightsweep {

// (name, bytes)
std::vector<std::pair<std::string, std::string>> gguf_seeds();

}  // namespace nightsweep
