#include "engine/prefix_index.h"

#include <algorithm>

namespace nightsweep {

namespace {

// First tokens of both.
uint32_t n_in_common(const PrefixIndex::Key& left, const PrefixIndex::Key& right) {
  if (left.parent != right.parent) return 0;
  const auto at = std::ranges::mismatch(left.known(), right.known()).in1;
  return static_cast<uint32_t>(at - left.known().begin());
}

}  // namespace

bool PrefixIndex::Order::operator()(const Key& left, const Key& right) const {
  if (left.parent != right.parent) return left.parent < right.parent;
  return std::ranges::lexicographical_compare(left.known(), right.known());
}

void PrefixIndex::begin_step() {
  ++step_;
  begun_.clear();
}

std::optional<PrefixIndex::Entry> PrefixIndex::find(const Key& key) const {
  auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

// From where the key would stand both ways: the further, the less is in common. Steps over no more
// than this step has added.
PrefixIndex::Beginning PrefixIndex::find_beginning(const Key& key) const {
  Beginning best;
  // False: nothing better follows.
  const auto look_at = [&](const auto& place) {
    const uint32_t n = n_in_common(place.first, key);
    if (n <= best.n_tokens) return false;
    if (place.second.step == step_) return true;
    best = {.page = place.second.page, .n_tokens = n};
    return false;
  };
  const auto after = entries_.lower_bound(key);
  for (auto at = after; at != entries_.end() && look_at(*at);)
    ++at;
  for (auto at = after; at != entries_.begin() && look_at(*std::prev(at));)
    --at;
  return best;
}

uint32_t PrefixIndex::n_begun(const Key& key) const {
  const auto after = begun_.lower_bound(key);
  uint32_t most = after == begun_.end() ? 0 : n_in_common(*after, key);
  if (after != begun_.begin()) most = std::max(most, n_in_common(*std::prev(after), key));
  return most;
}

PrefixIndex::Node PrefixIndex::add(const Key& key, uint32_t page) {
  auto [place, is_new] = entries_.try_emplace(key, Entry{.page = page, .step = step_});
  if (is_new) {
    forget(page);
    if (key.is_whole()) place->second.node = next_node_++;
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
