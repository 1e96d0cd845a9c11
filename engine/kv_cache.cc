#include "engine/kv_cache.h"

#include <cassert>
#include <utility>

#include "base/error.h"

namespace nightsweep {

KvCache::KvCache(Device& device, const KvShape& shape, uint32_t n_layers, uint32_t n_pages)
    : shape_(shape),
      n_pages_(n_pages),
      page_bytes_(device.kv_page_bytes(shape)),
      memory_(device.allocate(page_bytes_ * n_layers * n_pages)) {
  free_.reserve(n_pages);
  for (uint32_t page = n_pages; page > 0; --page)
    free_.push_back(page - 1);
}

KvLayer KvCache::layer(uint32_t index) const {
  return {
      .shape = shape_,
      .pages = memory_->data() + page_bytes_ * n_pages_ * index,
      .page_bytes = page_bytes_};
}

uint32_t KvCache::take_page() {
  assert(!free_.empty());
  uint32_t page = free_.back();
  free_.pop_back();
  return page;
}

void KvCache::give_back(uint32_t page) {
  free_.push_back(page);
}

uint64_t
KvCache::page_bytes_all_layers(const Device& device, const KvShape& shape, uint32_t n_layers) {
  return static_cast<uint64_t>(device.kv_page_bytes(shape)) * n_layers;
}

KvPages::KvPages(KvPages&& other) noexcept
    : cache_(other.cache_), pages_(std::exchange(other.pages_, {})) {}

KvPages& KvPages::operator=(KvPages&& other) noexcept {
  if (this != &other) {
    clear();
    cache_ = other.cache_;
    pages_ = std::exchange(other.pages_, {});
  }
  return *this;
}

bool KvPages::grow_to(uint64_t n_tokens) {
  uint32_t wanted = KvCache::pages_for(n_tokens);
  if (wanted <= pages_.size()) return true;
  if (wanted - pages_.size() > cache_->n_free()) return false;
  while (pages_.size() < wanted)
    pages_.push_back(cache_->take_page());
  return true;
}

void KvPages::clear() {
  while (!pages_.empty()) {
    cache_->give_back(pages_.back());
    pages_.pop_back();
  }
}

}  // namespace nightsweep
