// Weights from the file's layout into panels (layout.h), and single rows back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant.h"

namespace nightsweep::cpu {

// Bytes of a panel of 16 rows.
size_t panel_bytes(QuantType type, uint32_t n_cols);

// rows: n_rows (1 to 16) rows of n_cols values as in the file; panel: (panel_bytes).
void pack_panel(
    QuantType type,
    const std::byte* rows,
    uint32_t n_rows,
    uint32_t n_cols,
    std::byte* panel);

// Row `lane` of a panel as it was in the file.
void unpack_row(
    QuantType type,
    const std::byte* panel,
    uint32_t lane,
    uint32_t n_cols,
    std::byte* row);

}  // namespace nightsweep::cpu
