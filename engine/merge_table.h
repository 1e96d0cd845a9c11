// The merges of a BPE vocabulary: symbols, which pairs of them merge, and the merging itself.
//
// What a symbol is made of (bytes, or characters) and how a text becomes symbols is the business of
// the encoder that owns the table.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text_table.h"

namespace nightsweep {

class MergeTable {
 public:
  // A text that a merge can take or make. Ids below n_tokens() are tokens; the others occur in the
  // merges alone.
  using Symbol = uint32_t;
  static constexpr Symbol kNoSymbol = TextTable::kNone;

  struct Merge {
    uint32_t rank = UINT32_MAX;
    Symbol merged = kNoSymbol;
  };

  // Memory that is kept between calls; one a thread.
  struct Scratch {
    std::vector<Symbol> symbols;

   private:
    friend class MergeTable;
    std::vector<Merge> merges_;  // of symbols i and i + 1
    std::vector<uint32_t> next_;
    std::vector<uint32_t> previous_;
  };

  MergeTable(size_t n_tokens, size_t n_merges);

  // Gives the token its text; once for each id, in rising order. An empty text means that no merge
  // may make it. The first id of a text stays.
  void add_token(std::string_view text);
  // The symbol of `text`, a new one where there is none. REQUIRES: all tokens have been added.
  Symbol intern(std::string_view text);
  // Where a pair is added twice the last one counts, as in Hugging Face's tokenizers. REQUIRES: at
  // most n_merges of them.
  void add_merge(Symbol left, Symbol right, Merge merge);

  size_t n_tokens() const { return n_tokens_; }
  Symbol find(std::string_view text) const { return symbols_.find(text); }
  const std::string& text(Symbol symbol) const { return texts_[symbol]; }

  // Merges scratch.symbols in place: again and again the pair of lowest rank, leftmost on a tie.
  // Time n log n. Thread-safe.
  void merge(Scratch& scratch) const;

 private:
  Merge find_merge(Symbol left, Symbol right) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  size_t n_tokens_;
  std::deque<std::string> texts_;  // a deque: symbols_ points into its strings
  TextTable symbols_;

  // Open addressing over pairs of symbols.
  struct Slot {
    uint64_t pair = UINT64_MAX;
    Merge merge;
  };
  std::vector<Slot> merges_;
  int shift_ = 0;
};

// "left right" at the first space behind the first byte; throws Error(model), which names `source`
// and the merge, for a line that has none.
struct MergeLine {
  std::string_view left;
  std::string_view right;
};
MergeLine split_merge_line(std::string_view source, size_t rank, std::string_view line);

}  // namespace nightsweep
