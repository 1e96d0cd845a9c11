// Characters as Python's str sees them: code points, their classes and their cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/marked_string.h"

namespace nightsweep::jinja {

// Reads the code point at `position` and moves past it. A byte that is no UTF-8 counts as one code
// point U+FFFD, so that every string has a length.
char32_t next_point(std::string_view text, size_t& position);
void append_point(std::string& out, char32_t point);
size_t count_points(std::string_view text);
// Byte offset of the code point with that index; the size when there are not so many.
size_t offset_of_point(std::string_view text, size_t index);

bool is_space(char32_t point);
bool is_alpha(char32_t point);
bool is_decimal(char32_t point);
bool is_digit(char32_t point);
bool is_numeric(char32_t point);
bool is_upper(char32_t point);
bool is_lower(char32_t point);
bool is_title(char32_t point);
bool is_printable(char32_t point);

enum class CaseChange : uint8_t { lower, upper, title, capitalize, swap, fold };
// str.lower() and its like; keeps the marks of each character.
MarkedString change_case(const MarkedString& text, CaseChange change);
// Jinja's `title` filter: a word begins after white space or one of -({[<.
MarkedString title_words(const MarkedString& text);

// The byte range of `text` without the code points at its ends that `chars` holds; white space
// where `chars` is null.
MarkedString::Range
strip_range(std::string_view text, const std::string_view* chars, bool left, bool right);

}  // namespace nightsweep::jinja
