// Which variables belong to which frame of a template, as Python's Jinja2 decides it when it
// compiles: a name that a frame assigns anywhere is the frame's own from the start, also where an
// inner block reads it before the assignment ran.
#pragma once

#include "engine/jinja_ast.h"

namespace nightsweep::jinja {

// Fills the `locals` of the tree and its statements. Throws TemplateError.
void resolve_scopes(Tree& tree);

}  // namespace nightsweep::jinja
