// `nightsweep tokenize`: texts to token ids and back, one JSON object a line.
#pragma once

#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "engine/tokenizer.h"
#include "runner/output.h"

namespace nightsweep {

struct TokenizeOptions {
  std::string model;                // path of a GGUF file; one without tensors will do
  std::string input = "-";          // JSON Lines; "-": standard input
  std::optional<std::string> text;  // in place of the input: one text, with the defaults
  bool decode = false;              // lines hold ids, not texts
  bool skip_special = false;        // leaves control tokens out when decoding
};

// Throws Error(storage).
void write_to_stdout(std::string_view data);

// Reads {"text":…,"add_special":true,"parse_special":false} and writes {"ids":[…]}, or with
// `decode` the other way round. Blank lines are passed over. Throws Error(input) that names file,
// line and field; what was read before has been written then.
void tokenize_lines(
    const Tokenizer& tokenizer,
    const TokenizeOptions& options,
    std::istream& input,
    const WriteData& write);

// The command. Returns the exit code; throws Error.
int tokenize_command(const TokenizeOptions& options, const WriteData& write = write_to_stdout);

}  // namespace nightsweep
