// What stands between this machine and a night's work: checks, each with a remedy.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "runner/options.h"

namespace nightsweep {

struct Finding {
  enum class Level { ok, note, warning, error };
  Level level = Level::ok;
  std::string check;  // "queue", "disk", ...
  std::string text;
  std::string remedy;                    // empty: nothing to do
  ErrorKind kind = ErrorKind::internal;  // of an error: how the worker would end
};

const char* level_name(Finding::Level level);

// Looks, and changes nothing but for a probe file beside the queue that is gone again. A queue that
// is not there is not made.
std::vector<Finding> examine(const CommonOptions& options);

}  // namespace nightsweep
