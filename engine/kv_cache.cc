#include "engine/kv_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"

namespace nightsweep {

KvCache::KvCache(Device& device, const KvShape& shape, uint32_t n_layers, uint32_t n_pages)
    : device_(device),
      shape_(shape),
      n_layers_(n_layers),
      n_pages_(n_pages),
      page_bytes_(device.kv_page_bytes(shape)),
      memory_(device.allocate(page_bytes_ * n_layers * n_pages)),
      n_holders_(n_pages),
      places_(n_pages) {
  for (uint32_t page = 0; page < n_pages; ++page)
    places_[page] = free_.insert(free_.end(), page);
}

KvLayer KvCache::layer(uint32_t index) const {
  return {
      .shape = shape_,
      .pages = memory_->data() + page_bytes_ * n_pages_ * index,
      .page_bytes = page_bytes_};
}

uint32_t KvCache::take_page() {
  assert(!free_.empty());
  uint32_t page = free_.front();
  prefixes_.forget(page);
  add_holder(page);
  return page;
}

void KvCache::add_holder(uint32_t page) {
  if (n_holders_[page]++ == 0) free_.erase(places_[page]);
}

void KvCache::give_back(uint32_t page) {
  assert(n_holders_[page] > 0);
  if (--n_holders_[page] > 0) return;
  // What holds nothing goes first: the page used last is the warmest.
  places_[page] = free_.insert(prefixes_.has(page) ? free_.end() : free_.begin(), page);
  const auto dropped = std::ranges::find(copies_, page, &KvPageCopy::to);
  if (dropped == copies_.end()) return;
  const uint32_t from = dropped->from;
  copies_.erase(dropped);
  give_back(from);
}

void KvCache::copy_page(uint32_t from, uint32_t to) {
  add_holder(from);
  copies_.push_back({.from = from, .to = to});
}

void KvCache::run_copies() {
  if (copies_.empty()) return;
  device_.copy_kv_pages(layer(0), n_layers_, page_bytes_ * n_pages_, copies_);
  // Whoever takes a source writes it later than the copy.
  for (const KvPageCopy& copy : std::exchange(copies_, {}))
    give_back(copy.from);
}

uint64_t
KvCache::page_bytes_all_layers(const DeviceSizes& device, const KvShape& shape, uint32_t n_layers) {
  return static_cast<uint64_t>(device.kv_page_bytes(shape)) * n_layers;
}

KvPages::KvPages(KvPages&& other) noexcept
    : cache_(other.cache_),
      pages_(std::exchange(other.pages_, {})),
      n_known_(std::exchange(other.n_known_, 0)),
      prefix_(std::exchange(other.prefix_, PrefixIndex::kRoot)) {}

KvPages& KvPages::operator=(KvPages&& other) noexcept {
  if (this != &other) {
    clear();
    cache_ = other.cache_;
    pages_ = std::exchange(other.pages_, {});
    n_known_ = std::exchange(other.n_known_, 0);
    prefix_ = std::exchange(other.prefix_, PrefixIndex::kRoot);
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

// From the last one on: whoever takes free pages takes the ends of prefixes before their
// beginnings.
void KvPages::clear() {
  while (!pages_.empty()) {
    cache_->give_back(pages_.back());
    pages_.pop_back();
  }
  n_known_ = 0;
  prefix_ = PrefixIndex::kRoot;
}

bool KvPages::share_next(const PrefixIndex::Key& key) {
  assert(n_known_ == pages_.size());
  auto found = cache_->prefixes().find(key);
  if (!found) return false;
  cache_->add_holder(found->page);
  pages_.push_back(found->page);
  prefix_ = found->node;
  ++n_known_;
  return true;
}

void KvPages::note_next(const PrefixIndex::Key& key) {
  assert(n_known_ < pages_.size());
  const PrefixIndex::Node node = cache_->prefixes().add(key, pages_[n_known_]);
  if (!key.is_whole()) return;
  prefix_ = node;
  ++n_known_;
}

}  // namespace nightsweep
