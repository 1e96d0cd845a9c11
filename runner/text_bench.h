// What text costs on one core: `bench tokenize` and `bench render`.
#pragma once

#include <string>

#include "runner/options.h"

namespace nightsweep {

// Encodes English prose, then text without any space, the latter in two lengths to show how time
// grows. Returns the exit code; throws Error.
int bench_tokenize(const Arguments& arguments);

// Renders a short chat again and again, by a model's template or --template, and with a model
// encodes it too. Returns the exit code; throws Error.
int bench_render(const Arguments& arguments);

}  // namespace nightsweep
