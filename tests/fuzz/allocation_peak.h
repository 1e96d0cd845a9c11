// Counts the bytes that this program holds from operator new. Linking it replaces operator new.
#pragma once

#include <cstddef>

namespace nightsweep {

// The most bytes held at once since reset_allocation_peak(), above what was held then. One thread.
void reset_allocation_peak();
size_t allocation_peak_bytes();

}  // namespace nightsweep
