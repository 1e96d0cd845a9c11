#include "runner/gate.h"

namespace nightsweep {

std::optional<std::string> Gate::closed(const Control& control, int64_t now_ms) {
  if (control.is_paused) return "paused (nightsweep resume goes on)";
  int64_t now_s = now_ms / 1000;
  if (!windows_.is_open(now_s) && now_ms >= control.run_now_until_ms) {
    std::string opening = windows_.next_opening(now_s);
    return opening.empty() ? "no window opens in the next days" : "window opens " + opening;
  }
  return owner_.wants_machine();
}

}  // namespace nightsweep
