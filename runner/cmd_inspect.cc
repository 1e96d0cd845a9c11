#include "runner/command.h"
#include "runner/inspect_command.h"
#include "runner/model_source.h"
#include "runner/output.h"

namespace nightsweep {

namespace {

int inspect(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  CommonOptions options = begin_command(arguments);
  InspectRequest request;
  request.model_path = require_model(options.models, arguments.operands().front()).path;
  request.json = options.json;
  request.tensor = arguments.find("tensor").value_or("");
  request.output_path = arguments.find("output").value_or("");
  if (request.tensor.empty() != request.output_path.empty()) {
    fail(ErrorKind::usage, "--tensor NAME and -o OUT belong together");
  }
  refuse_same_file(request.output_path, request.model_path);
  return inspect_file(request, [](std::string_view text) { Stdout().write(text); });
}

}  // namespace

Command make_inspect_command() {
  return {
      .name = "inspect",
      .summary = "what a GGUF file is, and whether it can run here",
      .usage = "MODEL [--json] [--tensor NAME -o OUT]",
      .example = "nightsweep inspect model.gguf",
      .options = join(
          {{{.name = "tensor", .value = "NAME", .help = "write one tensor, dequantised"},
            {.name = "output", .value = "FILE", .help = "float32, little-endian", .letter = 'o'},
            json_option()},
           general_options()}),
      .min_positionals = 1,
      .max_positionals = 1,
      .run = inspect};
}

}  // namespace nightsweep
