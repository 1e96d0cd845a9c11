// `bench kernels`: times of a device's operators, one by one.
#pragma once

#include "runner/options.h"

namespace nightsweep {

// Returns the exit code; throws Error.
int bench_kernels(const Arguments& arguments);

}  // namespace nightsweep
