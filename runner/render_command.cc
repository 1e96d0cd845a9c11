#include "runner/render_command.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "engine/chat_template.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"

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

}  // namespace

int render_command(const RenderOptions& options) {
  std::string source;
  Json defaults{Json::Object{}};
  if (!options.model_path.empty()) {
    GgufModel model = GgufModel::open(options.model_path);
    source = model.require_string("tokenizer.chat_template");
    auto tokenizer = Tokenizer::from_gguf(model);
    auto set_token = [&](const char* name, int64_t id) {
      if (id >= 0) defaults.set(name, tokenizer->token_bytes(static_cast<uint32_t>(id)));
    };
    set_token("bos_token", tokenizer->bos());
    set_token("eos_token", tokenizer->eos());
  } else {
    source = read_whole_file(options.template_path, ErrorKind::input);
  }
  std::optional<ChatTemplate> compiled;
  try {
    compiled = ChatTemplate::compile(source);
  } catch (const TemplateError& error) {
    bool is_model = !options.model_path.empty();
    fail(
        is_model ? ErrorKind::model : ErrorKind::input, "{}: chat template: {}",
        is_model ? options.model_path : options.template_path, error.what());
  }

  std::ifstream file;
  if (options.input_path != "-") {
    file.open(options.input_path);
    if (!file) fail(ErrorKind::input, "{}: cannot be opened for reading", options.input_path);
  }
  std::istream& input = options.input_path == "-" ? std::cin : file;
  bool has_error = false;
  std::string text;
  while (std::getline(input, text)) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    Json result{Json::Object{}};
    try {
      Json variables = variables_of(Json::parse(text), defaults);
      result.set(
          "text", joined(compiled->render(variables, options.now_unix_s.value_or(local_now()))));
    } catch (const TemplateError& error) {
      result.set("error", error.what());
      has_error = true;
    } catch (const JsonError& error) {
      result.set("error", error.what());
      has_error = true;
    }
    std::cout << result.dump() << '\n';
  }
  std::cout.flush();
  return has_error ? 1 : 0;
}

}  // namespace nightsweep
