#include "engine/merge_table.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/error.h"

namespace nightsweep {

namespace {

constexpr uint64_t pair_of(uint32_t left, uint32_t right) {
  return static_cast<uint64_t>(left) << 32U | right;
}

// Fibonacci hashing: the high bits of the product are well mixed.
constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15ULL;

// Up to here scanning all pairs for the best is quicker than keeping a heap.
constexpr size_t kLongPiece = 64;

}  // namespace

MergeTable::MergeTable(size_t n_tokens, size_t n_merges)
    : n_tokens_(n_tokens),
      symbols_(n_tokens),
      merges_(std::bit_ceil(std::max(n_merges, size_t{1}) * 2)) {
  shift_ = 64 - std::countr_zero(merges_.size());
}

void MergeTable::add_token(std::string_view text) {
  const auto id = static_cast<Symbol>(texts_.size());
  const std::string& kept = texts_.emplace_back(text);
  if (!kept.empty()) symbols_.insert(kept, id);
}

MergeTable::Symbol MergeTable::intern(std::string_view text) {
  const Symbol known = symbols_.find(text);
  if (known != kNoSymbol) return known;
  const auto symbol = static_cast<Symbol>(texts_.size());
  symbols_.insert(texts_.emplace_back(text), symbol);
  return symbol;
}

void MergeTable::add_merge(Symbol left, Symbol right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  size_t place = pair * kGoldenRatio >> shift_;
  while (merges_[place].pair != UINT64_MAX && merges_[place].pair != pair)
    place = (place + 1) & (merges_.size() - 1);
  merges_[place] = {pair, merge};
}

MergeTable::Merge MergeTable::find_merge(Symbol left, Symbol right) const {
  const uint64_t pair = pair_of(left, right);
  size_t place = pair * kGoldenRatio >> shift_;
  while (merges_[place].pair != UINT64_MAX) {
    if (merges_[place].pair == pair) return merges_[place].merge;
    place = (place + 1) & (merges_.size() - 1);
  }
  return {};
}

void MergeTable::merge(Scratch& scratch) const {
  if (scratch.symbols.size() <= kLongPiece) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
}

void MergeTable::merge_short(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Merge>& merges = scratch.merges_;
  merges.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    merges.push_back(find_merge(symbols[i], symbols[i + 1]));
  }
  while (!merges.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < merges.size(); ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].merged == kNoSymbol) break;
    symbols[best] = merges[best].merged;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    merges.erase(merges.begin() + static_cast<ptrdiff_t>(best));
    if (best > 0) merges[best - 1] = find_merge(symbols[best - 1], symbols[best]);
    if (best < merges.size()) merges[best] = find_merge(symbols[best], symbols[best + 1]);
  }
}

void MergeTable::merge_long(Scratch& scratch) const {
  struct Candidate {
    uint32_t rank;
    uint32_t place;  // of the left one
    Symbol left;
    Symbol right;
    // The queue gives the largest: that is the lowest rank, leftmost.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };

  std::vector<Symbol>& symbols = scratch.symbols;
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t>& next = scratch.next_;
  std::vector<uint32_t>& previous = scratch.previous_;
  next.resize(n);
  previous.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first: never read
  }

  std::priority_queue<Candidate> candidates;
  auto consider = [&](uint32_t place) {
    const Symbol left = symbols[place];
    const Symbol right = symbols[next[place]];
    const Merge merge = find_merge(left, right);
    if (merge.merged != kNoSymbol) candidates.push({merge.rank, place, left, right});
  };
  for (uint32_t i = 0; i + 1 < n; ++i)
    consider(i);

  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const uint32_t place = best.place;
    // Stale when a merge has changed or taken either side since.
    if (symbols[place] != best.left || next[place] >= n || symbols[next[place]] != best.right) {
      continue;
    }
    const uint32_t taken = next[place];
    symbols[place] = find_merge(best.left, best.right).merged;
    symbols[taken] = kNoSymbol;
    next[place] = next[taken];
    if (next[place] < n) previous[next[place]] = place;
    if (place > 0) consider(previous[place]);
    if (next[place] < n) consider(place);
  }
  std::erase(symbols, kNoSymbol);
}

MergeLine split_merge_line(std::string_view source, size_t rank, std::string_view line) {
  const size_t space = line.empty() ? std::string_view::npos : line.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == line.size()) {
    fail(
        ErrorKind::model,
        "{}: tokenizer.ggml.merges: merge {}: expected two parts with a space between, found '{}'",
        source, rank, line);
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

}  // namespace nightsweep
