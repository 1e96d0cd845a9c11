#include "engine/text_encoder.h"

#include <atomic>

#include "base/log.h"

namespace nightsweep {

void say_once_that_bytes_are_dropped(std::string_view bytes) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  std::string hex;
  for (char c : bytes)
    hex += format(" {:02X}", static_cast<uint8_t>(c));
  log_warning(
      "the vocabulary has no token for the bytes{}: they are left out of the prompt, as in other "
      "engines; further such bytes are not reported",
      hex);
}

}  // namespace nightsweep
