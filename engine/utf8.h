// UTF-8, unit by unit. Well-formed is what table 3-7 of the Unicode standard allows: no overlong
// forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nightsweep {

enum class Utf8Kind {
  character,  // a whole, well-formed character
  invalid,    // bytes that no continuation could make a character
  truncated,  // the text ends inside a character that more bytes could complete
};

// `invalid` and `truncated` units are maximal: each stands for one U+FFFD, as in Python's
// errors="replace" and in the Encoding standard.
struct Utf8Unit {
  uint32_t n_bytes = 0;
  Utf8Kind kind = Utf8Kind::invalid;
};

// REQUIRES: `text` is not empty.
Utf8Unit first_utf8_unit(std::string_view text);

// Bytes at the front of `text` that are well-formed.
size_t valid_utf8_prefix(std::string_view text);

// Whether `character` is one whole character that Unicode calls white space.
bool is_blank(std::string_view character);

// Whether every byte is below 0x80.
bool is_ascii(std::string_view text);

}  // namespace nightsweep
