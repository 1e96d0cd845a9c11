#include "jobs/utf8.h"

#include "base/format.h"

namespace nightsweep {

namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

// Bytes at the start that belong together: a whole character, or as much of a broken one as could
// have begun a character (at least one byte). Table 3-7 of the Unicode standard.
size_t leading_part(std::string_view bytes, bool& is_whole) {
  auto byte = [&](size_t at) { return static_cast<unsigned char>(bytes[at]); };
  is_whole = false;
  unsigned char lead = byte(0);
  if (lead < 0x80) {
    is_whole = true;
    return 1;
  }
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 1;
  for (size_t i = 1; i < length; ++i) {
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (i >= bytes.size() || byte(i) < low || byte(i) > high) return i;
  }
  is_whole = true;
  return length;
}

}  // namespace

size_t utf8_length(std::string_view bytes) {
  if (bytes.empty()) return 0;
  bool is_whole = false;
  size_t length = leading_part(bytes, is_whole);
  return is_whole ? length : 0;
}

std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    bool is_whole = false;
    size_t length = leading_part(bytes, is_whole);
    if (is_whole) {
      text += bytes.substr(0, length);
    } else {
      text += kReplacement;
    }
    bytes.remove_prefix(length);
  }
  return text;
}

std::string printable(std::string_view bytes, size_t max_bytes) {
  std::string text;
  while (!bytes.empty()) {
    if (text.size() >= max_bytes) return text + "...";
    bool is_whole = false;
    size_t length = leading_part(bytes, is_whole);
    auto lead = static_cast<unsigned char>(bytes[0]);
    if (!is_whole) {
      text += kReplacement;
    } else if (lead < 0x20 || lead == 0x7F) {
      text += format("\\u{:04x}", lead);
    } else {
      text += bytes.substr(0, length);
    }
    bytes.remove_prefix(length);
  }
  return text;
}

}  // namespace nightsweep
