// Arithmetic on values, as Python does it. An integer that leaves 64 bits is an error.
#pragma once

#include "engine/jinja_ast.h"
#include "engine/jinja_runtime.h"

namespace nightsweep::jinja {

Value apply_binary(Runtime& runtime, BinaryOperator op, Value a, Value b);
Value apply_unary(Runtime& runtime, UnaryOperator op, Value a);
// & < > ' " as entities.
MarkedString escape_html(const MarkedString& text);

}  // namespace nightsweep::jinja
