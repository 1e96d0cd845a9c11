// KV pages: fixed pieces of kKvPageTokens positions, given to sequences as they grow.
//
// Sequences that begin with the same tokens hold the same pages: whole ones, which nobody writes
// any more. Of the page in whose middle their texts part each has a copy of its own, and goes on
// writing behind what is equal. A page that its last holder has given back is free, and keeps what
// it holds until it is taken for something else, so that those who come later may still share it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "engine/prefix_index.h"
#include "kernels/device.h"

namespace nightsweep {

// All pages of all layers, in one allocation of the device. A page number holds the same
// positions in every layer.
class KvCache {
 public:
  KvCache(Device& device, const KvShape& shape, uint32_t n_layers, uint32_t n_pages);

  uint32_t n_pages() const { return n_pages_; }
  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }
  KvLayer layer(uint32_t index) const;
  // A page with one holder, whose content is forgotten. Of free pages those go first that hold
  // nothing of use, then those that have been free for longest. REQUIRES: n_free() > 0.
  uint32_t take_page();
  void add_holder(uint32_t page);
  void give_back(uint32_t page);
  // Queued by run_copies(). Holds `from` until then; a page that is given back before is not
  // written.
  void copy_page(uint32_t from, uint32_t to);
  // Before the rows of the step that read or write the copies.
  void run_copies();

  // What pages hold or, within a step, will hold when it is done.
  PrefixIndex& prefixes() { return prefixes_; }

  static uint64_t
  page_bytes_all_layers(const DeviceSizes& device, const KvShape& shape, uint32_t n_layers);
  static uint32_t pages_for(uint64_t n_tokens) {
    return static_cast<uint32_t>((n_tokens + kKvPageTokens - 1) / kKvPageTokens);
  }
  // Of a request of so many tokens, prompt and answer: nothing attends to the last one.
  static uint32_t pages_for_request(uint64_t n_tokens) {
    return n_tokens < 2 ? 1 : pages_for(n_tokens - 1);
  }

 private:
  Device& device_;
  KvShape shape_;
  uint32_t n_layers_;
  uint32_t n_pages_;
  size_t page_bytes_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<uint32_t> n_holders_;                    // (pages)
  std::list<uint32_t> free_;                           // next to be taken first
  std::vector<std::list<uint32_t>::iterator> places_;  // (pages) in free_, where it is free
  std::vector<KvPageCopy> copies_;
  PrefixIndex prefixes_;
};

// The pages of one sequence, by position. Gives them back when destroyed.
class KvPages {
 public:
  explicit KvPages(KvCache& cache) : cache_(&cache) {}
  ~KvPages() { clear(); }
  KvPages(KvPages&& other) noexcept;
  KvPages& operator=(KvPages&& other) noexcept;

  // Makes room for positions below n_tokens; false (and nothing changed) when too few are free.
  bool grow_to(uint64_t n_tokens);
  void clear();
  std::span<const uint32_t> table() const { return pages_; }

  // Whole pages whose tokens are known to the cache, from the first on.
  uint32_t n_known() const { return n_known_; }
  PrefixIndex::Key key_of_next(const PageTokens& tokens, uint32_t n_tokens = kKvPageTokens) const {
    return {.parent = prefix_, .tokens = tokens, .n_tokens = n_tokens};
  }
  // Takes the page that holds the next tokens as its own; false: there is none.
  // REQUIRES: all its pages are known; the key is whole and one of key_of_next().
  bool share_next(const PrefixIndex::Key& key);
  // The next page behind the known ones holds these tokens when the step is done. A whole page is
  // known from now on. REQUIRES: it has that page; the key is one of key_of_next().
  void note_next(const PrefixIndex::Key& key);

 private:
  KvCache* cache_;
  std::vector<uint32_t> pages_;
  uint32_t n_known_ = 0;
  PrefixIndex::Node prefix_ = PrefixIndex::kRoot;  // of the known pages
};

}  // namespace nightsweep
