// Sorting and attribute paths, which filters and methods share.
#pragma once

#include <vector>

#include "engine/jinja_runtime.h"

namespace nightsweep::jinja {

// `items` in the order of `keys` (one each), stable as in Python, also when reversed.
std::vector<Value> sorted_by_keys(
    Runtime& runtime,
    const std::vector<Value>& items,
    const std::vector<Value>& keys,
    bool is_reversed);
// Lower case, so that order and equality do not see case; other values as they are.
Value without_case(Runtime& runtime, Value value);
// "a.b.0" of a value, as filters with attribute= read it. `path`: a string or an integer.
Value attribute_path(Runtime& runtime, Value object, Value path);

}  // namespace nightsweep::jinja
