// The two ways of Python to fill in a string: '%s' % x and '{}'.format(x).
#pragma once

#include "engine/jinja_runtime.h"

namespace nightsweep::jinja {

// `arguments`: a tuple, a dict for %(name)s, or one value.
MarkedString percent_format(Runtime& runtime, const Text& pattern, Value arguments);
MarkedString brace_format(Runtime& runtime, const Text& pattern, const Arguments& arguments);

}  // namespace nightsweep::jinja
