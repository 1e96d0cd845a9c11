// Template text to tokens, white space control done.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_template.h"

namespace nightsweep::jinja {

enum class TokenKind : uint8_t {
  data,  // text between tags
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,  // text: its value, escapes resolved
  integer,
  real,
  symbol,  // an operator or a bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  uint32_t line = 1;
  std::string text;
  int64_t integer = 0;
  double real = 0;
};

// Line ends become "\n", as Jinja does. Throws TemplateError. The last token is `end`.
std::vector<Token> tokenize(std::string_view source, const TemplateOptions& options);

}  // namespace nightsweep::jinja
