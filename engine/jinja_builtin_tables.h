// The tables of builtins, one function a file that defines some. Only jinja_builtins.cc asks for
// them.
#pragma once

#include <span>

#include "engine/jinja_builtins.h"

namespace nightsweep::jinja {

std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> tests();
std::span<const Builtin> globals();
std::span<const Builtin> text_methods();
std::span<const Builtin> text_class_methods();  // isalpha and its like
std::span<const Builtin> list_methods();
std::span<const Builtin> tuple_methods();
std::span<const Builtin> dict_methods();

// tojson
Value filter_tojson(Runtime& runtime, Value self, const Arguments& arguments);

}  // namespace nightsweep::jinja
