// str() and repr() of values.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/format.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

MarkedString quoted(const MarkedString& text) {
  const std::string& bytes = text.bytes();
  bool has_single = bytes.find('\'') != std::string::npos;
  char quote = has_single && bytes.find('"') == std::string::npos ? '"' : '\'';
  std::string_view quote_text(&quote, 1);
  MarkedString out;
  out.append(quote_text, false);
  MarkCursor marks(text);
  std::string piece;
  for (size_t at = 0; at < bytes.size();) {
    size_t begin = at;
    char32_t point = next_point(bytes, at);
    piece.clear();
    if (point == '\\' || point == static_cast<char32_t>(quote)) {
      piece = {'\\', static_cast<char>(point)};
    } else if (point == '\n') {
      piece = "\\n";
    } else if (point == '\r') {
      piece = "\\r";
    } else if (point == '\t') {
      piece = "\\t";
    } else if (is_printable(point)) {
      piece.assign(bytes, begin, at - begin);
    } else if (point < 0x100) {
      piece = format("\\x{:02x}", static_cast<uint32_t>(point));
    } else if (point < 0x10000) {
      piece = format("\\u{:04x}", static_cast<uint32_t>(point));
    } else {
      piece = format("\\U{:08x}", static_cast<uint32_t>(point));
    }
    out.append(piece, marks.is_input(begin));
  }
  out.append(quote_text, false);
  return out;
}

}  // namespace

std::string print_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  char* end =
      std::to_chars(
          buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific)
          .ptr;
  std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  size_t e = text.find('e');
  int exponent = 0;
  std::string_view exponent_text = text.substr(e + 1);
  if (exponent_text.starts_with('+')) exponent_text.remove_prefix(1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  // Python writes an exponent outside of 1e-4 to 1e16.
  if (exponent < -4 || exponent >= 16) {
    return format("{}e{}{:02d}", text.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed)
            .ptr;
  std::string result(buffer.data(), end);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

MarkedString Runtime::str(Value value) {
  if (value.is_text()) return value.text().marked;
  MarkedString out;
  print(value, false, out);
  return out;
}

MarkedString Runtime::repr(Value value) {
  MarkedString out;
  print(value, true, out);
  return out;
}

void Runtime::print_all(const std::vector<Value>& items, MarkedString& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ", false);
    print(items[i], true, out);
  }
}

void Runtime::print_dict(const Dict& dict, MarkedString& out) {
  out.append("{", false);
  bool is_first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!is_first) out.append(", ", false);
    is_first = false;
    print(key, true, out);
    out.append(": ", false);
    print(value, true, out);
  }
  out.append("}", false);
}

void Runtime::print(Value value, bool is_repr, MarkedString& out) {
  Nesting nesting(*this);
  step();
  // A small list that holds itself many times over prints to a huge text.
  if (out.size() > limits_.max_output_bytes) error("a value prints to too much text");
  bool is_container = value.is_sequence() || value.is(Kind::dict) || value.is(Kind::name_space) ||
                      value.is(Kind::dict_view);
  if (is_container) {
    bool is_cycle =
        std::find(printing_.begin(), printing_.end(), value.as_object()) != printing_.end();
    if (is_cycle) {
      out.append(value.is(Kind::list) ? "[...]" : value.is(Kind::tuple) ? "(...)" : "{...}", false);
      return;
    }
  }
  struct Mark {
    Mark(std::vector<const Object*>& stack, const Object* object) : stack_of(stack) {
      stack_of.push_back(object);
    }
    ~Mark() { stack_of.pop_back(); }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    std::vector<const Object*>& stack_of;
  };
  switch (value.kind()) {
    case Kind::undefined:
      if (is_repr) out.append("Undefined", false);
      return;
    case Kind::none:
      out.append("None", false);
      return;
    case Kind::boolean:
      out.append(value.as_boolean() ? "True" : "False", false);
      return;
    case Kind::integer:
      out.append(format("{}", value.as_integer()), false);
      return;
    case Kind::real:
      out.append(print_real(value.as_real()), false);
      return;
    case Kind::text:
      step_bytes(value.text().marked.size());
      if (!is_repr) {
        out.append(value.text().marked);
      } else if (value.text().is_markup) {
        out.append("Markup(", false);
        out.append(quoted(value.text().marked));
        out.append(")", false);
      } else {
        out.append(quoted(value.text().marked));
      }
      return;
    case Kind::list: {
      Mark mark(printing_, value.as_object());
      out.append("[", false);
      print_all(value.sequence().items, out);
      out.append("]", false);
      return;
    }
    case Kind::tuple: {
      Mark mark(printing_, value.as_object());
      out.append("(", false);
      print_all(value.sequence().items, out);
      out.append(value.sequence().items.size() == 1 ? ",)" : ")", false);
      return;
    }
    case Kind::dict: {
      Mark mark(printing_, value.as_object());
      print_dict(value.dict(), out);
      return;
    }
    case Kind::name_space: {
      Mark mark(printing_, value.as_object());
      out.append("<Namespace ", false);
      print_dict(value.dict(), out);
      out.append(">", false);
      return;
    }
    case Kind::range: {
      const Range& range = value.range();
      out.append(
          range.step == 1 ? format("range({}, {})", range.start, range.stop)
                          : format("range({}, {}, {})", range.start, range.stop, range.step),
          false);
      return;
    }
    case Kind::dict_view: {
      Mark mark(printing_, value.as_object());
      out.append(type_name(value), false);
      out.append("([", false);
      print_all(items_of(value), out);
      out.append("])", false);
      return;
    }
    case Kind::generator:
    case Kind::host:
      out.append(format("<{} object>", type_name(value)), false);
      return;
  }
}

}  // namespace nightsweep::jinja
