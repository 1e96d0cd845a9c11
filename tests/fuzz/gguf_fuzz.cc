// libFuzzer: gguf_fuzz -max_len=4096 NEW_FINDINGS tests/fuzz/corpus/gguf
#include <cstddef>
#include <cstdint>

#include "fuzz/gguf_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nightsweep::try_gguf(std::as_bytes(std::span(data, size)));
  return 0;
}
