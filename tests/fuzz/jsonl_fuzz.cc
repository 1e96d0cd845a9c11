// libFuzzer: any bytes as one request line.
#include <cstddef>
#include <cstdint>

#include "support/jsonl_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view line(reinterpret_cast<const char*>(data), size);
  nightsweep::LineOptions options;
  nightsweep::check_line(line, options);
  options.lenient = true;
  nightsweep::check_line(line, options);
  return 0;
}
