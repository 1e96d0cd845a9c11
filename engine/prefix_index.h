// PrefixIndex: which page holds the keys and values of which tokens.
//
// A node stands for a prefix of whole pages: the tokens of all of them, from the first position on.
// Keys and values depend on these tokens alone (see Device), so every sequence that begins with
// them may read the same pages. Tokens are compared, not hashes of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kernels/device.h"

namespace nightsweep {

using PageTokens = std::array<uint32_t, kKvPageTokens>;

class PrefixIndex {
 public:
  // Never given to another prefix.
  using Node = uint64_t;
  static constexpr Node kRoot = 0;  // the empty prefix

  // A page that follows a prefix.
  struct Key {
    Node parent = kRoot;
    PageTokens tokens{};
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    Node node = kRoot;  // the prefix that ends with the page
    uint32_t page = 0;
  };

  std::optional<Entry> find(const Key& key) const;
  // Notes that `page` holds it. Where another page does already that one stays; either way the node
  // of the prefix that ends here.
  Node add(const Key& key, uint32_t page);
  // The page will hold something else; prefixes that go on behind it are not found any more.
  void forget(uint32_t page);
  bool has(uint32_t page) const { return key_of_page_.contains(page); }

 private:
  std::unordered_map<Key, Entry, KeyHash> entries_;
  std::unordered_map<uint32_t, const Key*> key_of_page_;  // keys of entries_, whose places stay
  Node next_node_ = kRoot + 1;
};

}  // namespace nightsweep
