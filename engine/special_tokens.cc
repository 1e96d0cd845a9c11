#include "engine/special_tokens.h"

#include <algorithm>

#include "engine/utf8.h"

namespace nightsweep {

namespace {

size_t blanks_at_begin(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    const Utf8Unit unit = first_utf8_unit(text.substr(n));
    if (!is_blank(text.substr(n, unit.n_bytes))) break;
    n += unit.n_bytes;
  }
  return n;
}

size_t blanks_at_end(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    // Blanks are one to three bytes long.
    const std::string_view rest = text.substr(0, text.size() - n);
    size_t length = 0;
    for (size_t bytes = 1; bytes <= std::min<size_t>(3, rest.size()) && length == 0; ++bytes) {
      if (is_blank(rest.substr(rest.size() - bytes))) length = bytes;
    }
    if (length == 0) break;
    n += length;
  }
  return n;
}

}  // namespace

SpecialTokens::SpecialTokens(const TokenData& data) {
  for (uint32_t id = 0; id < data.texts.size(); ++id) {
    const TokenType type = data.types[id];
    if (data.texts[id].empty()) continue;
    if (is_control_type(type) || type == TokenType::user_defined) {
      entries_.push_back({.text = data.texts[id], .id = id, .needs_trust = is_control_type(type)});
    }
  }
  const auto contains = [](const std::vector<uint32_t>& ids, uint32_t id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  for (Entry& entry : entries_) {
    entry.strips_left = contains(data.strips_left, entry.id);
    entry.strips_right = contains(data.strips_right, entry.id);
  }
  std::ranges::stable_sort(entries_, {}, &Entry::text);
  const auto same_text = [](const Entry& x, const Entry& y) { return x.text == y.text; };
  // The first id of a text stays.
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same_text), entries_.end());
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    Slice& slice = by_first_byte_[static_cast<uint8_t>(entries_[i].text[0])];
    if (slice.end == 0) slice.begin = i;
    slice.end = i + 1;
  }
}

const SpecialTokens::Entry* SpecialTokens::longest_at(std::string_view text, size_t n_trusted)
    const {
  const Slice slice = by_first_byte_[static_cast<uint8_t>(text[0])];
  auto begin = entries_.begin() + slice.begin;
  auto end = entries_.begin() + slice.end;
  const Entry* longest = nullptr;
  // All of [begin, end) have their first `length` bytes in common with the text, so the one that
  // is no longer than that stands first.
  for (size_t length = 1; begin != end; ++length) {
    if (begin->text.size() == length) {
      if (!begin->needs_trust || length <= n_trusted) longest = &*begin;
      ++begin;
    }
    if (length == text.size()) break;
    const auto wanted = static_cast<uint8_t>(text[length]);
    const auto byte_at = [length](const Entry& entry) {
      return static_cast<uint8_t>(entry.text[length]);
    };
    begin = std::partition_point(
        begin, end, [&](const Entry& entry) { return byte_at(entry) < wanted; });
    end = std::partition_point(
        begin, end, [&](const Entry& entry) { return byte_at(entry) == wanted; });
  }
  return longest;
}

std::optional<SpecialTokens::Match>
SpecialTokens::find(std::string_view text, size_t from, const std::vector<Range>& trusted) const {
  // The first range that ends beyond the place looked at.
  auto range = std::ranges::upper_bound(trusted, from, {}, &Range::end);
  for (size_t at = from; at < text.size(); ++at) {
    const Slice slice = by_first_byte_[static_cast<uint8_t>(text[at])];
    if (slice.begin == slice.end) continue;
    while (range != trusted.end() && range->end <= at)
      ++range;
    const bool is_trusted = range != trusted.end() && range->begin <= at;
    const Entry* entry = longest_at(text.substr(at), is_trusted ? range->end - at : 0);
    if (entry == nullptr) continue;
    size_t begin = at;
    size_t end = at + entry->text.size();
    if (entry->strips_left) begin -= blanks_at_end(text.substr(from, at - from));
    if (entry->strips_right) end += blanks_at_begin(text.substr(end));
    return Match{begin, end, entry->id};
  }
  return std::nullopt;
}

}  // namespace nightsweep
