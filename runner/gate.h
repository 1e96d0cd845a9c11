// Whether the worker may work now: pause, windows, and the owner of the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "queue/queue.h"
#include "runner/owner.h"
#include "runner/window.h"

namespace nightsweep {

class Gate {
 public:
  Gate(RunWindows windows, OwnerOptions owner)
      : windows_(std::move(windows)), owner_(std::move(owner)) {}

  // Why not, as "window opens 22:00", "paused (nightsweep resume goes on)"; nullopt: it may.
  // `nightsweep run-now` overrides the windows, and nothing else.
  std::optional<std::string> closed(const Control& control, int64_t now_ms);

 private:
  RunWindows windows_;
  OwnerWatch owner_;
};

}  // namespace nightsweep
