// KV pages: fixed pieces of kKvPageTokens positions, given to sequences as they grow.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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
  // REQUIRES: n_free() > 0.
  uint32_t take_page();
  void give_back(uint32_t page);

  static uint64_t
  page_bytes_all_layers(const Device& device, const KvShape& shape, uint32_t n_layers);
  static uint32_t pages_for(uint64_t n_tokens) {
    return static_cast<uint32_t>((n_tokens + kKvPageTokens - 1) / kKvPageTokens);
  }

 private:
  KvShape shape_;
  uint32_t n_pages_;
  size_t page_bytes_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<uint32_t> free_;  // a stack: the page used last is the warmest
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

 private:
  KvCache* cache_;
  std::vector<uint32_t> pages_;
};

}  // namespace nightsweep
