// U+2581, which stands for the space in vocabularies of SentencePiece and its heirs.
#pragma once

#include <string>
#include <string_view>

namespace nightsweep {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// Where the first word of `text` ends: before a space mark that follows anything else.
size_t first_word_end(std::string_view text);

}  // namespace nightsweep
