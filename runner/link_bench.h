// `bench links`: link, disk and operators of this machine, as `plan --rates` reads them.
#pragma once

#include "runner/options.h"

namespace nightsweep {

// Returns the exit code; throws Error.
int bench_links(const Arguments& arguments);

}  // namespace nightsweep
