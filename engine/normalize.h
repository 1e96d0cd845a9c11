// Unicode normalisation form C, which some tokenizers ask for.
#pragma once

#include <string>
#include <string_view>

namespace nightsweep {

// True when NFC certainly leaves `text` as it is; cheap, and true for most Latin text.
bool is_surely_nfc(std::string_view text);

// Bytes that are not UTF-8 are kept as they are. Time n log n at most, whatever the text.
std::string normalize_nfc(std::string_view text);

}  // namespace nightsweep
