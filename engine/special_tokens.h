// Finds the tokens that are cut out of a text before it is encoded: control, unknown and
// user-defined ones, by their written form.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/token_data.h"

namespace nightsweep {

class SpecialTokens {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;  // blanks that the token takes along included
    uint32_t id = 0;
  };

  explicit SpecialTokens(const TokenData& data);

  // The leftmost match at or after `from`, the longest one there. Blanks in front are taken along
  // back to `from`. User-defined tokens match
  // anywhere; the others only within `trusted`: ranges [begin, end) of `text`, in order and apart.
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  std::optional<Match> find(std::string_view text, size_t from, const std::vector<Range>& trusted)
      const;

 private:
  struct Entry {
    std::string text;
    uint32_t id = 0;
    bool needs_trust = false;
    bool strips_left = false;
    bool strips_right = false;
  };
  // Of entries_.
  struct Slice {
    uint32_t begin = 0;
    uint32_t end = 0;
  };

  // The longest entry that `text` begins with; those that need trust only up to `n_trusted` bytes.
  const Entry* longest_at(std::string_view text, size_t n_trusted) const;

  std::vector<Entry> entries_;  // sorted by text
  std::array<Slice, 256> by_first_byte_ = {};
};

}  // namespace nightsweep
