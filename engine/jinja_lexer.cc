#include "engine/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/format.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

std::string normalize_lines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      result.push_back(source[i]);
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}
bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  Lexer(std::string_view source, const TemplateOptions& options)
      : source_(normalize_lines(source)), options_(options) {}

  std::vector<Token> run() {
    while (position_ < source_.size())
      lex_data();
    push(TokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(const std::string& text) {
    throw TemplateError(format("line {}: {}", line_, text));
  }

  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool at(std::string_view text) const { return rest().starts_with(text); }
  char peek(size_t offset) const {
    return position_ + offset < source_.size() ? source_[position_ + offset] : '\0';
  }

  void advance_to(size_t position) {
    line_ += static_cast<uint32_t>(std::count(
        source_.begin() + static_cast<ptrdiff_t>(position_),
        source_.begin() + static_cast<ptrdiff_t>(position), '\n'));
    position_ = position;
  }

  Token& push(TokenKind kind, std::string text) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    return token;
  }

  size_t after_spaces(size_t from) const {
    while (from < source_.size()) {
      size_t at_point = from;
      if (!is_space(next_point(source_, at_point))) break;
      from = at_point;
    }
    return from;
  }

  size_t after_newline(size_t from) const {
    return options_.trim_blocks && from < source_.size() && source_[from] == '\n' ? from + 1 : from;
  }

  // The text before a tag that begins at `end`, with the sign after its opening.
  void push_data(size_t end, char sign, bool may_strip_line) {
    std::string_view text(source_.data() + position_, end - position_);
    if (sign == '-') {
      text = text.substr(0, strip_range(text, nullptr, false, true).end);
    } else if (sign != '+' && options_.lstrip_blocks && may_strip_line) {
      size_t newline = text.rfind('\n');
      size_t line_begin = newline == kNone ? 0 : newline + 1;
      bool starts_line = line_begin > 0 || position_ == 0 || source_[position_ - 1] == '\n';
      std::string_view indent = text.substr(line_begin);
      if (starts_line && strip_range(indent, nullptr, true, false).begin == indent.size()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) push(TokenKind::data, std::string(text));
  }

  void lex_data() {
    size_t tag = position_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == kNone || tag + 1 >= source_.size()) {
        push(TokenKind::data, std::string(rest()));
        advance_to(source_.size());
        return;
      }
      char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    char kind = source_[tag + 1];
    size_t inside = tag + 2;
    char sign = '\0';
    if (inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+')) {
      sign = source_[inside++];
    }
    push_data(tag, sign, kind != '{');
    advance_to(inside);
    if (kind == '#') {
      lex_comment();
    } else if (kind == '{') {
      push(TokenKind::variable_begin, "{{");
      lex_tag(TokenKind::variable_end);
    } else if (size_t raw = after_raw_tag("raw", inside); raw != kNone) {
      advance_to(raw);
      lex_raw();
    } else {
      push(TokenKind::block_begin, "{%");
      lex_tag(TokenKind::block_end);
    }
  }

  void lex_comment() {
    size_t end = source_.find("#}", position_);
    if (end == kNone) error("a comment that begins here has no end #}");
    char sign = end > position_ ? source_[end - 1] : '\0';
    end += 2;
    advance_to(sign == '-' ? after_spaces(end) : sign == '+' ? end : after_newline(end));
  }

  // Where the tag `{% word %}` ends whose inside begins at `inside`; kNone when it is another one.
  size_t after_raw_tag(std::string_view word, size_t inside) const {
    size_t i = after_spaces(inside);
    if (!std::string_view(source_).substr(i).starts_with(word)) return kNone;
    i = after_spaces(i + word.size());
    std::string_view close = std::string_view(source_).substr(i);
    if (close.starts_with("-%}")) return after_spaces(i + 3);
    bool is_end = word == "endraw";
    if (is_end && close.starts_with("+%}")) return i + 3;
    if (!close.starts_with("%}")) return kNone;
    return is_end ? after_newline(i + 2) : i + 2;
  }

  void lex_raw() {
    for (size_t tag = source_.find("{%", position_); tag != kNone;
         tag = source_.find("{%", tag + 1)) {
      size_t inside = tag + 2;
      char sign = '\0';
      if (inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+')) {
        sign = source_[inside++];
      }
      size_t end = after_raw_tag("endraw", inside);
      if (end == kNone) continue;
      push_data(tag, sign, true);
      advance_to(end);
      return;
    }
    error("a raw block that begins here has no {% endraw %}");
  }

  bool lex_tag_end(TokenKind end) {
    std::string_view close = end == TokenKind::variable_end ? "}}" : "%}";
    size_t after = kNone;
    if (peek(0) == '-' && rest().substr(1).starts_with(close)) {
      after = after_spaces(position_ + 3);
    } else if (
        end == TokenKind::block_end && peek(0) == '+' && rest().substr(1).starts_with(close)) {
      after = position_ + 3;
    } else if (at(close)) {
      after = position_ + 2;
      if (end == TokenKind::block_end) after = after_newline(after);
    }
    if (after == kNone) return false;
    push(end, std::string(close));
    advance_to(after);
    return true;
  }

  void lex_tag(TokenKind end) {
    std::string open_brackets;
    uint32_t begin_line = line_;
    while (true) {
      if (open_brackets.empty() && lex_tag_end(end)) return;
      if (position_ >= source_.size()) {
        throw TemplateError(format(
            "line {}: a tag that begins here has no end {}", begin_line,
            end == TokenKind::variable_end ? "}}" : "%}"));
      }
      char c = peek(0);
      if (size_t past = after_spaces(position_); past != position_) {
        advance_to(past);
      } else if (is_ascii_digit(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        size_t stop = position_;
        while (stop < source_.size() &&
               (is_name_start(source_[stop]) || is_ascii_digit(source_[stop]))) {
          ++stop;
        }
        push(TokenKind::name, source_.substr(position_, stop - position_));
        advance_to(stop);
      } else if (c == '\'' || c == '"') {
        lex_string(c);
      } else {
        lex_symbol(open_brackets);
      }
    }
  }

  void lex_symbol(std::string& open_brackets) {
    static constexpr std::array<std::string_view, 26> kSymbols{
        "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (std::string_view symbol : kSymbols) {
      if (!at(symbol)) continue;
      if (symbol == "(" || symbol == "[" || symbol == "{") {
        open_brackets.push_back(symbol == "(" ? ')' : symbol == "[" ? ']' : '}');
      } else if (symbol == ")" || symbol == "]" || symbol == "}") {
        if (open_brackets.empty()) error(format("unexpected '{}'", symbol));
        if (open_brackets.back() != symbol[0]) {
          error(format("unexpected '{}', expected '{}'", symbol, open_brackets.back()));
        }
        open_brackets.pop_back();
      }
      push(TokenKind::symbol, std::string(symbol));
      advance_to(position_ + symbol.size());
      return;
    }
    error(format("unexpected character '{}'", source_.substr(position_, 1)));
  }

  // Digits with single underscores between them, from `from` on.
  size_t after_digits(size_t from, int base) const {
    auto is_digit_of_base = [&](size_t i) {
      char c = i < source_.size() ? source_[i] : '\0';
      if (base == 16) {
        return is_ascii_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      }
      return c >= '0' && c < '0' + base;
    };
    while (is_digit_of_base(from) || (source_[from] == '_' && is_digit_of_base(from + 1)))
      ++from;
    return from;
  }

  void lex_number() {
    int base = 10;
    if (peek(0) == '0') {
      char letter = static_cast<char>(peek(1) | 0x20);
      if (letter == 'x') base = 16;
      if (letter == 'o') base = 8;
      if (letter == 'b') base = 2;
    }
    size_t begin = base == 10 ? position_ : position_ + 2;
    size_t end = after_digits(begin, base);
    bool is_real = false;
    // No fraction after a dot: in a.0.1 these are two indexes.
    bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::symbol &&
                     tokens_.back().text == "." && position_ > 0 && source_[position_ - 1] == '.';
    if (base == 10 && !after_dot) {
      size_t stop = end;
      auto digit_at = [&](size_t i) { return i < source_.size() && is_ascii_digit(source_[i]); };
      if (stop < source_.size() && source_[stop] == '.' && digit_at(stop + 1)) {
        stop = after_digits(stop + 1, 10);
        is_real = true;
      }
      if (stop < source_.size() && (source_[stop] == 'e' || source_[stop] == 'E')) {
        size_t exponent = stop + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
          ++exponent;
        }
        if (digit_at(exponent)) {
          stop = after_digits(exponent, 10);
          is_real = true;
        }
      }
      if (is_real) end = stop;
    }
    std::string digits = source_.substr(begin, end - begin);
    std::erase(digits, '_');
    Token& token = push(is_real ? TokenKind::real : TokenKind::integer, digits);
    const char* last = digits.data() + digits.size();
    if (is_real) {
      auto result = std::from_chars(digits.data(), last, token.real);
      if (result.ec != std::errc{}) error(format("the number {} is out of range", digits));
    } else {
      auto result = std::from_chars(digits.data(), last, token.integer, base);
      if (result.ec != std::errc{}) {
        error(format(
            "the number {} does not fit 64 bits", source_.substr(position_, end - position_)));
      }
    }
    advance_to(end);
  }

  void lex_string(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote)
      end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error(format("a string that begins here has no closing {}", quote));
    push(
        TokenKind::string,
        unescape(std::string_view(source_).substr(position_ + 1, end - position_ - 1)));
    advance_to(end + 1);
  }

  std::string unescape(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '\\') {
        result.push_back(text[i++]);
        continue;
      }
      char c = text[i + 1];
      i += 2;
      static constexpr std::string_view kLetters = "\\'\"abfnrtv";
      static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
      if (size_t which = kLetters.find(c); which != kNone) {
        result.push_back(kMeanings[which]);
      } else if (c >= '0' && c <= '7') {
        size_t n = 1;
        while (n < 3 && i - 1 + n < text.size() && text[i - 1 + n] >= '0' && text[i - 1 + n] <= '7')
          ++n;
        append_escape(result, text.substr(i - 1, n), 8);
        i += n - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (text.size() - i < n) error(format("the escape \\{} needs {} hexadecimal digits", c, n));
        append_escape(result, text.substr(i, n), 16);
        i += n;
      } else if (c == 'N') {
        error("the escape \\N{...} is not supported: write \\uXXXX");
      } else if (c != '\n') {
        result.push_back('\\');
        result.push_back(c);
      }
    }
    return result;
  }

  void append_escape(std::string& out, std::string_view digits, int base) {
    uint32_t point = 0;
    auto result = std::from_chars(digits.data(), digits.data() + digits.size(), point, base);
    if (result.ec != std::errc{} || result.ptr != digits.data() + digits.size() ||
        point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
      error(format("the escape with the digits {} names no character", digits));
    }
    append_point(out, point);
  }

  std::string source_;
  TemplateOptions options_;
  size_t position_ = 0;
  uint32_t line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const TemplateOptions& options) {
  return Lexer(source, options).run();
}

}  // namespace nightsweep::jinja
