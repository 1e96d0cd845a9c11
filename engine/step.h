// Step: the rows of one sweep. Prefill chunks and decode rows mix freely.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace nightsweep {

struct Step {
  std::vector<uint32_t> tokens;                        // (rows)
  std::vector<uint32_t> positions;                     // (rows)
  std::vector<uint32_t> sequences;                     // (rows) index into page_tables
  std::vector<std::span<const uint32_t>> page_tables;  // one a sequence of this step
  std::vector<uint32_t> logit_rows;                    // rows whose logits are wanted, rising

  uint32_t n_rows() const { return static_cast<uint32_t>(tokens.size()); }
  // Rows [first, first + n).
  StepRows rows(uint32_t first, uint32_t n) const {
    return {
        .positions = std::span(positions).subspan(first, n),
        .sequences = std::span(sequences).subspan(first, n),
        .page_tables = page_tables};
  }
  void clear() {
    tokens.clear();
    positions.clear();
    sequences.clear();
    page_tables.clear();
    logit_rows.clear();
  }
  // Opens a sequence's rows; its rows follow through add_row.
  void add_sequence(std::span<const uint32_t> page_table) { page_tables.push_back(page_table); }
  void add_row(uint32_t token, uint32_t position, bool wants_logits) {
    if (wants_logits) logit_rows.push_back(n_rows());
    tokens.push_back(token);
    positions.push_back(position);
    sequences.push_back(static_cast<uint32_t>(page_tables.size()) - 1);
  }
};

}  // namespace nightsweep
