// The part of inspect that builds tokenizer and chat template.
#include "base/error.h"
#include "engine/chat_template.h"
#include "engine/inspect.h"
#include "engine/tokenizer.h"

namespace nightsweep {

void inspect_vocabulary(const GgufModel& model, InspectReport& report) {
  try {
    report.tokenizer = Tokenizer::from_gguf(model)->description();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    if (report.why_not.empty()) {
      report.why_not = error.what();
    } else {
      report.notes.emplace_back(error.what());
    }
  }
  const GgufValue* source = model.find("tokenizer.chat_template");
  if (source == nullptr) return;
  const auto* text = std::get_if<std::string>(&source->value);
  if (text == nullptr) {
    report.notes.push_back(
        format("chat template: expected a string, found {}", gguf_type_name(source->type)));
    return;
  }
  try {
    ChatTemplate::compile(*text);
  } catch (const TemplateError& error) {
    report.notes.push_back(format("chat template: {}", error.what()));
  }
}

}  // namespace nightsweep
