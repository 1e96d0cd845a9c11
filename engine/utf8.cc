#include "engine/utf8.h"

#include <cstring>

namespace nightsweep {

namespace {

constexpr uint64_t kHighBits = 0x8080808080808080ULL;

uint64_t load_word(const char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

size_t ascii_prefix(std::string_view text) {
  size_t n = 0;
  while (n + sizeof(uint64_t) <= text.size() && (load_word(text.data() + n) & kHighBits) == 0) {
    n += sizeof(uint64_t);
  }
  while (n < text.size() && static_cast<uint8_t>(text[n]) < 0x80)
    ++n;
  return n;
}

}  // namespace

Utf8Unit first_utf8_unit(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {1, Utf8Kind::character};

  uint32_t length = 0;
  // What the second byte may be; the others are always 80..BF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, Utf8Kind::invalid};
  }

  for (uint32_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, Utf8Kind::truncated};
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < low || byte > high) return {i, Utf8Kind::invalid};
    low = 0x80;
    high = 0xBF;
  }
  return {length, Utf8Kind::character};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    n += ascii_prefix(text.substr(n));
    if (n == text.size()) break;
    const Utf8Unit unit = first_utf8_unit(text.substr(n));
    if (unit.kind != Utf8Kind::character) break;
    n += unit.n_bytes;
  }
  return n;
}

bool is_blank(std::string_view character) {
  // All of Unicode's White_Space.
  static constexpr std::string_view kBlanks[] = {
      " ",
      "\t",
      "\n",
      "\v",
      "\f",
      "\r",
      "\xC2\x85",
      "\xC2\xA0",
      "\xE1\x9A\x80",
      "\xE2\x80\x80",
      "\xE2\x80\x81",
      "\xE2\x80\x82",
      "\xE2\x80\x83",
      "\xE2\x80\x84",
      "\xE2\x80\x85",
      "\xE2\x80\x86",
      "\xE2\x80\x87",
      "\xE2\x80\x88",
      "\xE2\x80\x89",
      "\xE2\x80\x8A",
      "\xE2\x80\xA8",
      "\xE2\x80\xA9",
      "\xE2\x80\xAF",
      "\xE2\x81\x9F",
      "\xE3\x80\x80",
  };
  for (std::string_view blank : kBlanks) {
    if (character == blank) return true;
  }
  return false;
}

bool is_ascii(std::string_view text) {
  return ascii_prefix(text) == text.size();
}

}  // namespace nightsweep
