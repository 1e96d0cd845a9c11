#include "engine/jinja_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/format.h"
#include "engine/jinja_number_spec.h"
#include "engine/jinja_text.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

int64_t integer_argument(Runtime& runtime, Value value, char type) {
  runtime.refuse_undefined(value);
  if (value.is_integral()) return value.as_integer();
  if (value.is(Kind::real) && (type == 'd' || type == 'i' || type == 'u')) {
    double real = value.as_real();
    if (std::abs(real) < 9.2e18) return static_cast<int64_t>(real);
  }
  runtime.error(
      format("%{} format: an integer is required, not {}", type, runtime.type_name(value)));
}

class PercentFormat {
 public:
  PercentFormat(Runtime& runtime, const Text& pattern, Value arguments)
      : runtime_(runtime), pattern_(pattern), bytes_(pattern.bytes()), arguments_(arguments) {}

  MarkedString run() {
    while (position_ < bytes_.size()) {
      size_t percent = std::min(bytes_.find('%', position_), bytes_.size());
      out_.append(pattern_.marked, position_, percent);
      position_ = percent;
      if (position_ < bytes_.size()) run_directive();
      if (out_.size() > runtime_.limits().max_output_bytes)
        runtime_.error("% makes too long a text");
    }
    // What Python can index with [] passes for a mapping, and mappings may be left unused.
    bool is_mapping = arguments_.is(Kind::dict) || arguments_.is(Kind::list) ||
                      arguments_.is(Kind::range) || arguments_.is_undefined();
    size_t n = arguments_.is(Kind::tuple) ? arguments_.sequence().items.size() : 1;
    if (!is_mapping && n_used_ < n) {
      runtime_.error("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  char peek() {
    if (position_ >= bytes_.size()) runtime_.error("incomplete format");
    return bytes_[position_];
  }

  Value next_argument() {
    if (arguments_.is(Kind::tuple)) {
      const auto& items = arguments_.sequence().items;
      if (n_used_ >= items.size()) runtime_.error("not enough arguments for format string");
      return items[n_used_++];
    }
    if (n_used_++ > 0) runtime_.error("not enough arguments for format string");
    return arguments_;
  }

  Value named_argument() {
    size_t end = bytes_.find(')', position_);
    if (end == std::string::npos) runtime_.error("incomplete format key");
    if (!arguments_.is(Kind::dict)) runtime_.error("format requires a mapping");
    std::string name = bytes_.substr(position_, end - position_);
    position_ = end + 1;
    const Value* value = arguments_.dict().find(name);
    if (value == nullptr) runtime_.error(format("the format has no value for '{}'", name));
    n_used_ = 1;
    return *value;
  }

  int number_or_star(int fallback) {
    if (peek() == '*') {
      ++position_;
      return static_cast<int>(
          std::clamp<int64_t>(integer_argument(runtime_, next_argument(), '*'), -1, kMaxWidth));
    }
    if (!is_digit_char(peek())) return fallback;
    int n = 0;
    while (is_digit_char(peek()))
      n = std::min(n * 10 + (bytes_[position_++] - '0'), kMaxWidth + 1);
    if (n > kMaxWidth) runtime_.error(format("a format is wider than {}", kMaxWidth));
    return n;
  }

  void run_directive() {
    ++position_;
    NumberSpec spec;
    spec.align = '>';
    std::optional<Value> named;
    if (peek() == '(') {
      ++position_;
      named = named_argument();
    }
    bool pads_zeros = false;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++position_) {
      char flag = peek();
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      if (flag == '#') spec.is_alternate = true;
      if (flag == '0') pads_zeros = true;
    }
    spec.width = number_or_star(0);
    if (peek() == '.') {
      ++position_;
      spec.precision = number_or_star(0);
    }
    while (std::string_view("hlL").find(peek()) != std::string_view::npos)
      ++position_;
    spec.type = peek();
    ++position_;
    if (spec.type == '%') {
      out_.append("%", false);
      return;
    }
    Value value = named ? *named : next_argument();
    if (pads_zeros && spec.align != '<') {
      spec.fill.assign(1, '0');
      spec.align = '=';
    }
    append_directive(spec, value);
  }

  void append_directive(NumberSpec& spec, Value value) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        MarkedString text = spec.type == 's' ? runtime_.str(value) : runtime_.repr(value);
        if (spec.precision >= 0) {
          text = text.part(0, offset_of_point(text.bytes(), static_cast<size_t>(spec.precision)));
        }
        out_.append(pad(text, spec.width, spec.align == '<' ? Align::left : Align::right, " "));
        return;
      }
      case 'c': {
        MarkedString text;
        if (value.is_text()) {
          if (value.text().n_points != 1) runtime_.error("%c requires int or char");
          text = value.text().marked;
        } else {
          int64_t point = integer_argument(runtime_, value, 'c');
          if (point < 0 || point > 0x10FFFF) runtime_.error("%c arg not in range(0x110000)");
          std::string character;
          append_point(character, static_cast<char32_t>(point));
          text = MarkedString(character);
        }
        out_.append(pad(text, spec.width, spec.align == '<' ? Align::left : Align::right, " "));
        return;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': {
        int64_t number = integer_argument(runtime_, value, spec.type);
        if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
        out_.append(print_integer(number, spec), false);
        return;
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        runtime_.refuse_undefined(value);
        if (!value.is_number()) {
          runtime_.error(format("must be real number, not {}", runtime_.type_name(value)));
        }
        out_.append(print_real(value.as_real(), spec), false);
        return;
      default:
        runtime_.error(format("unsupported format character '{}'", spec.type));
    }
  }

  Runtime& runtime_;
  const Text& pattern_;
  const std::string& bytes_;
  Value arguments_;
  size_t position_ = 0;
  size_t n_used_ = 0;
  MarkedString out_;
};

class BraceFormat {
 public:
  BraceFormat(Runtime& runtime, const Arguments& arguments)
      : runtime_(runtime), arguments_(arguments) {}

  MarkedString run(const MarkedString& pattern, int depth) {
    if (depth > 2) runtime_.error("Max string recursion exceeded");
    const std::string& bytes = pattern.bytes();
    MarkedString out;
    for (size_t at = 0; at < bytes.size();) {
      size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.append(pattern, at, brace);
      if (brace == bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        out.append(pattern, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (bytes[brace] == '}') runtime_.error("Single '}' encountered in format string");
      size_t end = closing_brace(bytes, brace);
      out.append(field(pattern.part(brace + 1, end), depth));
      at = end + 1;
      if (out.size() > runtime_.limits().max_output_bytes) {
        runtime_.error("format() makes too long a text");
      }
    }
    return out;
  }

 private:
  size_t closing_brace(const std::string& bytes, size_t open) {
    int depth = 0;
    for (size_t i = open; i < bytes.size(); ++i) {
      if (bytes[i] == '{') ++depth;
      if (bytes[i] == '}' && --depth == 0) return i;
    }
    runtime_.error("expected '}' before end of string");
  }

  MarkedString field(const MarkedString& text, int depth) {
    const std::string& bytes = text.bytes();
    size_t colon = std::min(bytes.find(':'), bytes.size());
    size_t bang = std::min(bytes.find('!'), colon);
    Value value = find_value(std::string_view(bytes).substr(0, bang));
    if (bang < colon) {
      std::string conversion = bytes.substr(bang + 1, colon - bang - 1);
      if (conversion != "s" && conversion != "r" && conversion != "a") {
        runtime_.error(format("Unknown conversion specifier '{}'", conversion));
      }
      value = runtime_.heap().text(conversion == "s" ? runtime_.str(value) : runtime_.repr(value));
    }
    MarkedString spec;
    if (colon < bytes.size()) spec = run(text.part(colon + 1, bytes.size()), depth + 1);
    return format_value(value, spec.bytes());
  }

  Value find_value(std::string_view path) {
    size_t end = std::min(path.find_first_of(".["), path.size());
    std::string_view name = path.substr(0, end);
    Value value;
    if (name.empty() || is_digit_char(name[0])) {
      size_t index = name.empty() ? n_automatic_++ : index_of(name);
      if (index >= arguments_.positional.size()) {
        runtime_.error(
            format("Replacement index {} out of range for positional args tuple", index));
      }
      value = arguments_.positional[index];
    } else {
      auto found = std::find_if(
          arguments_.named.begin(), arguments_.named.end(),
          [&](const auto& argument) { return argument.first == name; });
      if (found == arguments_.named.end()) {
        runtime_.error(format("format() has no argument '{}'", name));
      }
      value = found->second;
    }
    path.remove_prefix(end);
    while (!path.empty()) {
      if (path[0] == '.') {
        end = std::min(path.find_first_of(".[", 1), path.size());
        value = runtime_.attribute(value, path.substr(1, end - 1));
      } else {
        end = path.find(']');
        if (end == std::string_view::npos) runtime_.error("Missing ']' in format string");
        std::string_view key = path.substr(1, end - 1);
        bool is_index = !key.empty() && std::all_of(key.begin(), key.end(), is_digit_char);
        value = runtime_.item(
            value, is_index ? Value::integer(static_cast<int64_t>(index_of(key)))
                            : runtime_.heap().text(key));
        ++end;
      }
      path.remove_prefix(end);
    }
    return value;
  }

  size_t index_of(std::string_view digits) {
    size_t index = 0;
    for (char c : digits) {
      if (!is_digit_char(c) || index > 1'000'000) runtime_.error("a bad index in format string");
      index = index * 10 + static_cast<size_t>(c - '0');
    }
    return index;
  }

  MarkedString format_value(Value value, const std::string& spec_text) {
    if (spec_text.empty()) return runtime_.str(value);
    NumberSpec spec;
    if (std::string fault = parse_number_spec(spec_text, spec); !fault.empty()) {
      runtime_.error(fault);
    }
    auto refuse_type = [&] {
      runtime_.error(format(
          "Unknown format code '{}' for object of type '{}'", spec.type,
          runtime_.type_name(value)));
    };
    static constexpr std::string_view kIntegerTypes("\0bdoxXn", 7);
    static constexpr std::string_view kRealTypes("eEfFgG%");
    if (value.is_integral() && kIntegerTypes.find(spec.type) != std::string_view::npos) {
      return MarkedString(print_integer(value.as_integer(), spec));
    }
    if (value.is_number()) {
      bool is_plain_real = value.is(Kind::real) && (spec.type == '\0' || spec.type == 'n');
      if (!is_plain_real && kRealTypes.find(spec.type) == std::string_view::npos) refuse_type();
      return MarkedString(print_real(value.as_real(), spec));
    }
    if (!value.is_text()) {
      runtime_.error(
          format("unsupported format string passed to {}.__format__", runtime_.type_name(value)));
    }
    if (spec.type != '\0' && spec.type != 's') refuse_type();
    MarkedString text = value.text().marked;
    if (spec.precision >= 0) {
      text = text.part(0, offset_of_point(text.bytes(), static_cast<size_t>(spec.precision)));
    }
    Align align = spec.align == '>' ? Align::right : Align::left;
    if (spec.align == '^') {  // format() puts the odd blank behind, center() not always
      auto missing = spec.width - static_cast<int64_t>(count_points(text.bytes()));
      text = pad(text, spec.width - (missing + 1) / 2, Align::right, spec.fill);
    }
    return pad(text, spec.width, align, spec.fill);
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  size_t n_automatic_ = 0;
};

}  // namespace

MarkedString percent_format(Runtime& runtime, const Text& pattern, Value arguments) {
  return PercentFormat(runtime, pattern, arguments).run();
}

MarkedString brace_format(Runtime& runtime, const Text& pattern, const Arguments& arguments) {
  return BraceFormat(runtime, arguments).run(pattern.marked, 0);
}

}  // namespace nightsweep::jinja
