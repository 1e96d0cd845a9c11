#include "runner/render_command.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "engine/chat_template.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "runner/text_input.h"

namespace nightsweep {
namespace {

constexpr std::array<std::string_view, 6> kKeys{"messages",  "tools",     "add_generation_prompt",
                                                "bos_token", "eos_token", "chat_template_kwargs"};

int64_t local_now() {
  std::time_t seconds = std::time(nullptr);
  std::tm fields{};
  localtime_r(&seconds, &fields);
  return seconds + fields.tm_gmtoff;
}

// The variables of one line. `defaults`: the model's own bos_token and eos_token.
Json variables_of(const Json& line, const Json& defaults) {
  if (!line.is_object()) throw TemplateError("a line must be an object, found " + line.kind_text());
  Json variables = defaults;
  variables.set("add_generation_prompt", true);
  for (const auto& [key, value] : line.as_object()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      throw TemplateError(
          "the key '" + key +
          "' is not known: put variables of the template into chat_template_kwargs");
    }
    if (key != "chat_template_kwargs") variables.set(key, value);
  }
  const Json* more = line.find("chat_template_kwargs");
  if (more == nullptr || more->is_null()) return variables;
  if (!more->is_object()) {
    throw TemplateError("chat_template_kwargs must be an object, found " + more->kind_text());
  }
  for (const auto& [key, value] : more->as_object())
    variables.set(key, value);
  return variables;
}

struct TemplateSource {
  std::string text;
  std::string why_none;           // why there is no template; empty where there is one
  Json defaults{Json::Object{}};  // variables that a line may replace
};

TemplateSource source_of(const RenderOptions& options) {
  TemplateSource source;
  if (options.model_path.empty()) {
    source.text = read_whole_file(options.template_path, ErrorKind::input);
    return source;
  }
  GgufModel model = GgufModel::open(options.model_path);
  if (const std::string* text = model.find_string("tokenizer.chat_template")) {
    source.text = *text;
  } else {
    source.why_none = format("{} has no chat template", model.name());
  }
  auto tokenizer = Tokenizer::from_gguf(model);
  auto set_token = [&](const char* name, int64_t id) {
    if (id >= 0) source.defaults.set(name, tokenizer->token_bytes(static_cast<uint32_t>(id)));
  };
  set_token("bos_token", tokenizer->bos());
  set_token("eos_token", tokenizer->eos());
  return source;
}

class Renderer {
 public:
  Renderer(TemplateSource source, std::optional<int64_t> now_unix_s)
      : defaults_(std::move(source.defaults)), now_unix_s_(now_unix_s) {
    reason_ = source.why_none;
    if (!reason_.empty()) return;
    try {
      compiled_ = ChatTemplate::compile(source.text);
    } catch (const TemplateError& error) {
      reason_ = format("the chat template cannot be compiled: {}", error.what());
    }
  }

  // Throws TemplateError, JsonError.
  std::string render(std::string_view line) const {
    if (!compiled_) throw TemplateError(reason_);
    Json variables = variables_of(Json::parse(line), defaults_);
    return joined(compiled_->render(variables, now_unix_s_ ? *now_unix_s_ : local_now()));
  }

 private:
  Json defaults_;
  std::optional<int64_t> now_unix_s_;
  std::optional<ChatTemplate> compiled_;
  std::string reason_;  // why there is no compiled template
};

int render_lines(const Renderer& renderer, std::istream& input, const WriteData& write) {
  bool has_error = false;
  bool is_first = true;
  for (std::string raw; std::getline(input, raw); is_first = false) {
    const std::string_view line = line_content(raw, is_first);
    if (line.empty()) continue;
    Json result{Json::Object{}};
    auto refuse = [&](std::string reason) {
      result.set("error", std::move(reason));
      has_error = true;
    };
    try {
      result.set("text", renderer.render(line));
    } catch (const TemplateError& error) {
      refuse(error.what());
    } catch (const JsonError& error) {
      refuse(format("expected JSON, found an error at byte {}: {}", error.offset(), error.what()));
    }
    write(result.dump() + "\n");
  }
  return has_error ? 1 : 0;
}

}  // namespace

int render_command(const RenderOptions& options, const WriteData& write) {
  Renderer renderer(source_of(options), options.now_unix_s);
  bool is_stdin = options.input_path == "-";
  std::ifstream file;
  if (!is_stdin) {
    file.open(options.input_path, std::ios::binary);
    if (!file) fail_errno(ErrorKind::input, errno, options.input_path);
  }
  std::istream& input = is_stdin ? std::cin : file;
  int code = render_lines(renderer, input, write);
  if (input.bad()) {
    fail_errno(ErrorKind::input, errno, is_stdin ? "standard input" : options.input_path);
  }
  return code;
}

}  // namespace nightsweep
