// `render`: chats through a template, to see what a model is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nightsweep {

struct RenderOptions {
  std::string model_path;  // one of the two is given
  std::string template_path;
  std::string input_path = "-";       // "-": standard input
  std::optional<int64_t> now_unix_s;  // fixes the clock
};

// Writes {"text":...} or {"error":...} a line to standard output. 1 when a line has an error.
int render_command(const RenderOptions& options);

}  // namespace nightsweep
