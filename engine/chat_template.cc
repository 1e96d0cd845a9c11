#include "engine/chat_template.h"

#include <utility>

#include "base/format.h"
#include "engine/jinja_eval.h"
#include "engine/jinja_parser.h"

namespace nightsweep {

struct ChatTemplate::Program {
  std::unique_ptr<jinja::Tree> tree;
  std::vector<const jinja::Builtin*> globals;  // by symbol
  TemplateLimits limits;
  std::string source;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::compile(
    std::string_view source,
    const TemplateLimits& limits,
    const TemplateOptions& options) {
  auto program = std::make_unique<Program>();
  program->limits = limits;
  program->source = source;
  program->tree = jinja::parse(source, options, limits);
  const jinja::SymbolTable& symbols = program->tree->symbols;
  for (jinja::Symbol symbol = 0; symbol < symbols.size(); ++symbol) {
    program->globals.push_back(jinja::find_global(symbols.name(symbol)));
  }
  return ChatTemplate(std::move(program));
}

bool ChatTemplate::mentions(const std::string& name) const {
  return program_->tree->symbols.find(name) != nullptr;
}

bool ChatTemplate::contains(std::string_view text) const {
  return program_->source.find(text) != std::string::npos;
}

std::vector<TextSpan> ChatTemplate::render(const Json& variables, int64_t now_unix_s) const {
  if (!variables.is_object()) {
    throw TemplateError(
        format("the variables of a template must be an object, found {}", variables.kind_text()));
  }
  const jinja::Tree& tree = *program_->tree;
  jinja::Evaluator evaluator(tree, program_->globals, program_->limits, now_unix_s);
  for (const auto& [name, value] : variables.as_object()) {
    const jinja::Symbol* symbol = tree.symbols.find(name);
    if (symbol == nullptr) continue;
    bool is_trusted = name == "bos_token" || name == "eos_token";
    evaluator.set_root(*symbol, evaluator.runtime().from_json(value, !is_trusted));
  }
  MarkedString text = evaluator.run();

  std::vector<TextSpan> spans;
  size_t position = 0;
  auto add = [&](size_t end, bool is_template) {
    if (end > position) {
      spans.push_back({text.bytes().substr(position, end - position), is_template});
    }
    position = end;
  };
  for (MarkedString::Range range : text.input()) {
    add(range.begin, true);
    add(range.end, false);
  }
  add(text.size(), true);
  return spans;
}

std::string joined(const std::vector<TextSpan>& spans) {
  std::string text;
  for (const TextSpan& span : spans)
    text += span.text;
  return text;
}

}  // namespace nightsweep
