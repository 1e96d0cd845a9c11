#include "runner/command.h"
#include "runner/model_source.h"
#include "runner/output.h"
#include "runner/tokenize_command.h"

namespace nightsweep {

namespace {

int tokenize(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  CommonOptions options = begin_command(arguments);
  TokenizeOptions request;
  request.model = chosen_model(options).path;
  request.text = arguments.find("text");
  request.decode = arguments.has("decode");
  request.skip_special = arguments.has("skip-special");
  if (!arguments.operands().empty()) {
    if (request.text) fail(ErrorKind::usage, "--text and a FILE exclude each other");
    request.input = arguments.operands().front();
  }
  if (request.text && request.decode) {
    fail(ErrorKind::usage, "--decode reads ids from a FILE or stdin, not --text");
  }
  if (request.skip_special && !request.decode) {
    fail(ErrorKind::usage, "--skip-special belongs to --decode");
  }
  return tokenize_command(request, [](std::string_view data) { Stdout().write(data); });
}

}  // namespace

Command make_tokenize_command() {
  return {
      .name = "tokenize",
      .summary = "token ids of texts, or texts of ids",
      .usage = "--model MODEL [FILE] [--text S] [--decode]",
      .example = "nightsweep tokenize --model model.gguf --text 'Good night'",
      .options = join(
          {{{.name = "model", .value = "FILE", .help = "GGUF file, or a name from [models]"},
            {.name = "text",
             .value = "S",
             .help = "this text in place of a file",
             .may_be_empty = true},
            {.name = "decode", .value = "", .help = "{\"ids\":[...]} to {\"text\":...}"},
            {.name = "skip-special", .value = "", .help = "decoding: leave special tokens out"}},
           general_options()}),
      .min_positionals = 0,
      .max_positionals = 1,
      .run = tokenize};
}

}  // namespace nightsweep
