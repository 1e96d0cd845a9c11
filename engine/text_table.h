// Texts by content: the id of a byte string in a few nanoseconds.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace nightsweep {

class TextTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit TextTable(size_t n_expected) : slots_(n_slots_for(n_expected)) {}

  // Keeps the first id of a text. The bytes of `text` must outlive the table.
  void insert(std::string_view text, uint32_t id) {
    if ((n_used_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place_of(text, hash_of(text))];
    if (slot.id != kNone) return;
    slot = {text, hash_of(text), id};
    ++n_used_;
  }

  // kNone when the text is not there.
  uint32_t find(std::string_view text) const { return slots_[place_of(text, hash_of(text))].id; }

 private:
  struct Slot {
    std::string_view text;
    uint64_t hash = 0;
    uint32_t id = kNone;
  };

  static size_t n_slots_for(size_t n) {
    size_t n_slots = 16;
    while (n_slots < n * 2)
      n_slots *= 2;
    return n_slots;
  }

  static uint64_t hash_of(std::string_view text);

  size_t place_of(std::string_view text, uint64_t hash) const {
    size_t place = hash & (slots_.size() - 1);
    while (slots_[place].id != kNone &&
           (slots_[place].hash != hash || slots_[place].text != text)) {
      place = (place + 1) & (slots_.size() - 1);
    }
    return place;
  }

  void grow();

  std::vector<Slot> slots_;  // a power of two of them, at most half used
  size_t n_used_ = 0;
};

}  // namespace nightsweep
