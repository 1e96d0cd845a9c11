#include "engine/text_table.h"

#include <cstring>
#include <utility>

namespace nightsweep {

namespace {

uint64_t mix(uint64_t value) {
  // The finaliser of MurmurHash3.
  value ^= value >> 33U;
  value *= 0xFF51AFD7ED558CCDULL;
  value ^= value >> 33U;
  value *= 0xC4CEB9FE1A85EC53ULL;
  value ^= value >> 33U;
  return value;
}

}  // namespace

uint64_t TextTable::hash_of(std::string_view text) {
  uint64_t hash = text.size() * 0x9E3779B97F4A7C15ULL;
  while (text.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), sizeof word);
    hash = mix(hash ^ word);
    text.remove_prefix(sizeof word);
  }
  uint64_t rest = 0;
  for (char c : text)
    rest = rest << 8U | static_cast<uint8_t>(c);
  return mix(hash ^ rest);
}

void TextTable::grow() {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
  for (const Slot& slot : old) {
    if (slot.id != kNone) slots_[place_of(slot.text, slot.hash)] = slot;
  }
}

}  // namespace nightsweep
