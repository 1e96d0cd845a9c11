#include <unistd.h>

#include <charconv>

#include "base/log.h"
#include "runner/command.h"
#include "runner/model_source.h"
#include "runner/output.h"
#include "runner/text_input.h"

namespace nightsweep {

namespace {

std::vector<uint32_t>
parse_ids(const std::string& text, const std::string& file, uint32_t n_vocab) {
  constexpr const char* kBlanks = " \t\r\n";
  std::vector<uint32_t> ids;
  for (size_t at = text.find_first_not_of(kBlanks); at != std::string::npos;) {
    size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    uint32_t id = 0;
    auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id >= n_vocab) {
      fail(
          ErrorKind::input, "{}: id {}: expected a token id below {}, found '{}'", file,
          ids.size() + 1, n_vocab, text.substr(at, std::min<size_t>(end - at, 40)));
    }
    ids.push_back(id);
    at = text.find_first_not_of(kBlanks, end);
  }
  if (ids.empty()) fail(ErrorKind::input, "{}: expected token ids, found none", file);
  return ids;
}

int logits(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  CommonOptions options = begin_command(arguments);
  auto tokens_file = arguments.find("tokens");
  auto output = arguments.find("output");
  if (!tokens_file)
    fail(ErrorKind::usage, "expected --tokens FILE (token ids, white space between)");
  if (!output) fail(ErrorKind::usage, "expected -o OUT (float32, a row of logits a position)");
  refuse_same_file(*output, *tokens_file);
  uint32_t chunk = 0;
  if (auto text = arguments.find("chunk")) {
    chunk = static_cast<uint32_t>(parse_count(*text, "--chunk", 1, 1 << 20));
  }
  auto model = PromptModel::open(chosen_model(options), options.context_tokens);
  for (const std::string& file : model->gguf()->paths())
    refuse_same_file(*output, file, "the model");
  check_output(*output);
  std::string text = read_text_input(*tokens_file);
  auto engine = open_engine(model->gguf(), options);
  uint32_t n_vocab = engine->config().n_vocab;
  std::vector<uint32_t> ids = parse_ids(text, *tokens_file, n_vocab);
  if (ids.size() > engine->context_tokens()) {
    fail(
        ErrorKind::input, "{}: expected at most {} tokens (the context), found {}", *tokens_file,
        engine->context_tokens(), ids.size());
  }
  auto sink = open_output(*output);
  engine->logits(ids, chunk, [&](uint32_t /*first*/, uint32_t n_rows, const float* rows) {
    sink->write(
        {reinterpret_cast<const char*>(rows), sizeof(float) * size_t{n_rows} * size_t{n_vocab}});
  });
  sink->commit();
  return 0;
}

}  // namespace

Command make_logits_command() {
  return {
      .name = "logits",
      .summary = "raw logits of every position of a list of token ids",
      .usage = "--model MODEL --tokens FILE -o OUT [options]",
      .example = "nightsweep logits --model model.gguf --tokens ids.txt -o logits.f32 --math exact",
      .options = join(
          {{{.name = "tokens",
             .value = "FILE",
             .help = "token ids, white space between; - is stdin"},
            {.name = "output",
             .value = "FILE",
             .help = "float32, little-endian, [ids][vocabulary]",
             .letter = 'o'},
            {.name = "chunk", .value = "N", .help = "prefill in chunks of N tokens"}},
           engine_options(),
           general_options()}),
      .min_positionals = 0,
      .max_positionals = 0,
      .run = logits};
}

}  // namespace nightsweep
