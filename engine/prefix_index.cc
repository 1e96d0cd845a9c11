#include "engine/prefix_index.h"

namespace nightsweep {

size_t PrefixIndex::KeyHash::operator()(const Key& key) const {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  uint64_t hash = key.parent;
  for (uint32_t token : key.tokens) {
    hash = (hash ^ token) * kFactor;
    hash ^= hash >> 32;
  }
  return hash;
}

std::optional<PrefixIndex::Entry> PrefixIndex::find(const Key& key) const {
  auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

PrefixIndex::Node PrefixIndex::add(const Key& key, uint32_t page) {
  auto [place, is_new] = entries_.try_emplace(key, Entry{.node = next_node_, .page = page});
  if (is_new) {
    ++next_node_;
    key_of_page_[page] = &place->first;
  }
  return place->second.node;
}

void PrefixIndex::forget(uint32_t page) {
  auto found = key_of_page_.find(page);
  if (found == key_of_page_.end()) return;
  entries_.erase(entries_.find(*found->second));
  key_of_page_.erase(found);
}

}  // namespace nightsweep
