// `render`: chats through a template, to see what a model is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runner/output.h"

namespace nightsweep {

struct RenderOptions {
  std::string model_path;  // one of the two is given
  std::string template_path;
  std::string input_path = "-";       // "-": standard input
  std::optional<int64_t> now_unix_s;  // fixes the clock
};

// Reads a JSON object a line and writes {"text":...} or {"error":...}; blank lines are passed over.
// A template that cannot be compiled is the error of every line. Returns the exit code: 1 when a
// line has an error. Throws Error for a file that cannot be read and a model without a template.
int render_command(const RenderOptions& options, const WriteData& write);

}  // namespace nightsweep
