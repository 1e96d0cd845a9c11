// Chats to prompt text, by the Jinja template in the model file.
//
// The interpreter covers the statements, filters, tests and methods that chat templates use and
// refuses what it does not know by name, when the template is compiled. A template is untrusted
// code: steps, depth and output have limits.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/tokenizer.h"

namespace nightsweep {

// A rendering that failed: raise_exception in the template, a type error, a limit. Belongs to its
// line alone.
class TemplateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TemplateLimits {
  uint64_t max_steps = 10'000'000;  // evaluated nodes
  size_t max_output_bytes = 64 << 20;
  size_t max_memory_bytes = 256 << 20;  // all strings, lists and dicts that a rendering builds
  uint32_t max_depth = 200;             // nested calls, and brackets and blocks within each other
};

// As Hugging Face sets Jinja up. One trailing newline of the template is always dropped.
struct TemplateOptions {
  bool trim_blocks = true;    // drop the newline after a block tag
  bool lstrip_blocks = true;  // drop the blanks of a line before a block tag
};

class ChatTemplate {
 public:
  // Throws TemplateError with line and what was not understood.
  static ChatTemplate compile(
      std::string_view source,
      const TemplateLimits& limits = {},
      const TemplateOptions& options = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Whether the template mentions a name: a variable that it does not mention has no effect.
  bool mentions(const std::string& name) const;
  // Whether its text holds `text`, say a marker that it writes or looks for.
  bool contains(std::string_view text) const;

  // `variables`: an object: messages, tools, add_generation_prompt, bos_token, ... given as they
  // are. now_unix_s: what strftime_now shows, as UTC seconds with the local offset already added.
  // Spans: what the template wrote parses control tokens, what came out of a string of the
  // `variables` does not (bos_token and eos_token are trusted).
  // Thread-safe. Throws TemplateError.
  std::vector<TextSpan> render(const Json& variables, int64_t now_unix_s) const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

std::string joined(const std::vector<TextSpan>& spans);

}  // namespace nightsweep
