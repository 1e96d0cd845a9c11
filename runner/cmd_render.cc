#include <ctime>

#include "runner/command.h"
#include "runner/model_source.h"
#include "runner/output.h"
#include "runner/render_command.h"

namespace nightsweep {

namespace {

// "2024-07-26T12:30:00", with a blank for the T, or the day alone: what a template's clock shows.
int64_t parse_time(const std::string& text) {
  for (const char* form : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"}) {
    std::tm fields{};
    const char* end = ::strptime(text.c_str(), form, &fields);
    if (end == nullptr) continue;
    if (std::string_view rest = end; !rest.empty() && rest != "Z") continue;
    return ::timegm(&fields);
  }
  fail(ErrorKind::usage, "--now: expected a time such as 2024-07-26T12:30:00, found '{}'", text);
}

int render(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  CommonOptions options = begin_command(arguments);
  RenderOptions request;
  if (auto file = arguments.find("template")) {
    if (arguments.has("model")) {
      fail(ErrorKind::usage, "--model and --template exclude each other");
    }
    request.template_path = *file;
  } else {
    request.model_path = chosen_model(options).path;
  }
  if (!arguments.operands().empty()) request.input_path = arguments.operands().front();
  if (auto text = arguments.find("now")) request.now_unix_s = parse_time(*text);
  return render_command(request, [](std::string_view data) { Stdout().write(data); });
}

}  // namespace

Command make_render_command() {
  return {
      .name = "render",
      .summary = "chats as the prompt text that a model is given",
      .usage = "--model MODEL | --template FILE [FILE]",
      .example = "nightsweep render --model model.gguf chats.jsonl",
      .options = join(
          {{{.name = "model", .value = "FILE", .help = "GGUF file, or a name from [models]"},
            {.name = "template", .value = "FILE", .help = "a Jinja template in place of a model's"},
            {.name = "now", .value = "TIME", .help = "fix the clock: 2024-07-26T12:30:00"}},
           general_options()}),
      .min_positionals = 0,
      .max_positionals = 1,
      .run = render};
}

}  // namespace nightsweep
