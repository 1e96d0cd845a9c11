// PrefixIndex: which page holds the keys and values of which tokens.
//
// A node stands for a prefix of whole pages: the tokens of all of them, from the first position on.
// Keys and values depend on these tokens alone (see Device), so every sequence that begins with
// them may read the same pages, or copy the beginning of one that goes on otherwise. Tokens are
// compared, not hashes of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>

#include "kernels/device.h"

namespace nightsweep {

using PageTokens = std::array<uint32_t, kKvPageTokens>;

class PrefixIndex {
 public:
  // Never given to another prefix.
  using Node = uint64_t;
  static constexpr Node kRoot = 0;  // the empty prefix

  // The first tokens of a page that follows a prefix.
  struct Key {
    Node parent = kRoot;
    PageTokens tokens{};
    uint32_t n_tokens = kKvPageTokens;  // the others mean nothing

    bool is_whole() const { return n_tokens == kKvPageTokens; }
    std::span<const uint32_t> known() const { return std::span(tokens).first(n_tokens); }
  };
  struct Entry {
    Node node = kRoot;  // the prefix that ends with the page; of a whole one only
    uint32_t page = 0;
    uint64_t step = 0;  // in which it was added
  };
  struct Beginning {
    uint32_t page = 0;
    uint32_t n_tokens = 0;
  };

  // What was added before is computed before any row of the step that begins.
  void begin_step();

  // The page that holds all tokens of a whole key, in this step if not before.
  std::optional<Entry> find(const Key& key) const;
  // Of pages that were added before this step, one that has most first tokens in common with the
  // key; 0 tokens: none has any.
  Beginning find_beginning(const Key& key) const;
  // The most first tokens that a page of note_begun() has in common with the key.
  uint32_t n_begun(const Key& key) const;

  // Notes that `page` holds it, in place of what it was known for: a beginning of the same tokens.
  // Where another page does already that one stays. Of a whole key either way the node of the
  // prefix that ends here.
  Node add(const Key& key, uint32_t page);
  // This step works on a page of these tokens, and the next one will if they are not all computed.
  void note_begun(const Key& key) { begun_.insert(key); }
  // The page will hold something else; prefixes that go on behind it are not found any more.
  void forget(uint32_t page);
  bool has(uint32_t page) const { return key_of_page_.contains(page); }

 private:
  // By the prefix, then token by token: next to a key stand those that have most tokens in common
  // with it. So thousands of texts behind one prefix cost a search, not a walk.
  struct Order {
    bool operator()(const Key& left, const Key& right) const;
  };

  std::map<Key, Entry, Order> entries_;
  std::unordered_map<uint32_t, const Key*> key_of_page_;  // keys of entries_, whose places stay
  std::set<Key, Order> begun_;                            // of this step
  Node next_node_ = kRoot + 1;
  uint64_t step_ = 0;
};

}  // namespace nightsweep
