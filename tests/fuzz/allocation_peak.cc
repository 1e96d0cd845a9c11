#include "fuzz/allocation_peak.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

// Signed: what was taken before the count began may be given back.
std::ptrdiff_t held_bytes = 0;
std::ptrdiff_t base_bytes = 0;
std::ptrdiff_t peak_bytes = 0;

}  // namespace

void* operator new(size_t size) {
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  held_bytes += static_cast<std::ptrdiff_t>(malloc_usable_size(memory));
  peak_bytes = std::max(peak_bytes, held_bytes);
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  held_bytes -= static_cast<std::ptrdiff_t>(malloc_usable_size(memory));
  std::free(memory);
}

void operator delete(void* memory, size_t /*size*/) noexcept {
  operator delete(memory);
}

namespace nightsweep {

void reset_allocation_peak() {
  base_bytes = peak_bytes = held_bytes;
}
size_t allocation_peak_bytes() {
  return static_cast<size_t>(peak_bytes - base_bytes);
}

}  // namespace nightsweep
