// Tokens to the tree: statements by descent, expressions by binding power.
#pragma once

#include <memory>
#include <string_view>

#include "engine/jinja_ast.h"

namespace nightsweep::jinja {

// Throws TemplateError that gives the line and what was not understood: a statement, filter or
// test that is not supported is named.
std::unique_ptr<Tree>
parse(std::string_view source, const TemplateOptions& options, const TemplateLimits& limits);

}  // namespace nightsweep::jinja
