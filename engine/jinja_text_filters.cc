// Filters that make text.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_format.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_text.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

// A string as it is, anything else printed.
Value soft_text(Runtime& runtime, Value value) {
  return value.is_text() ? value : runtime.heap().text(runtime.str(value));
}

// A filter that is a method of str.
Value by_method(Runtime& runtime, std::string_view method, Value self, const Arguments& arguments) {
  return runtime.call_builtin(*find_text_method(method), soft_text(runtime, self), arguments);
}

Value filter_upper(Runtime& runtime, Value self, const Arguments& arguments) {
  return by_method(runtime, "upper", self, arguments);
}
Value filter_lower(Runtime& runtime, Value self, const Arguments& arguments) {
  return by_method(runtime, "lower", self, arguments);
}
Value filter_capitalize(Runtime& runtime, Value self, const Arguments& arguments) {
  return by_method(runtime, "capitalize", self, arguments);
}
Value filter_trim(Runtime& runtime, Value self, const Arguments& arguments) {
  return by_method(runtime, "strip", self, arguments);
}

Value filter_title(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "title", arguments, {});
  return runtime.heap().text(title_words(runtime.str(self)));
}

Value filter_center(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "center", arguments, {"width"});
  Arguments width;
  width.positional.push_back(Value::integer(parameters.integer(0, 80)));
  return by_method(runtime, "center", self, width);
}

Value filter_replace(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  Arguments printed;
  printed.positional = {
      runtime.heap().text(runtime.str(parameters[0])),
      runtime.heap().text(runtime.str(parameters[1]))};
  if (parameters.has_value(2)) printed.positional.push_back(parameters[2]);
  return by_method(runtime, "replace", runtime.heap().text(runtime.str(self)), printed);
}

Value filter_string(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "string", arguments, {});
  return soft_text(runtime, self);
}

Value filter_safe(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "safe", arguments, {});
  return runtime.heap().text(runtime.str(self), true);
}

Value filter_forceescape(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "forceescape", arguments, {});
  return runtime.heap().text(escape_html(runtime.str(self)), true);
}

Value filter_escape(Runtime& runtime, Value self, const Arguments& arguments) {
  if (self.is_text() && self.text().is_markup) return self;
  return filter_forceescape(runtime, self, arguments);
}

Value filter_format(Runtime& runtime, Value self, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    runtime.error("format: arguments have names or places, not both");
  }
  Value values;
  if (arguments.named.empty()) {
    values = runtime.heap().tuple(arguments.positional);
  } else {
    values = Value::object(Kind::dict, runtime.heap().make<Dict>());
    for (const auto& [name, value] : arguments.named) {
      values.dict().set(runtime.heap().text(name), value);
    }
  }
  return runtime.heap().text(percent_format(runtime, soft_text(runtime, self).text(), values));
}

Value filter_indent(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "indent", arguments, {"width", "first", "blank"});
  std::string indent;
  if (parameters.has(0) && parameters[0].is_text()) {
    indent = parameters.text(0).bytes();
  } else {
    int64_t width = std::max<int64_t>(parameters.integer(0, 4), 0);
    if (width > 4096) runtime.error("indent: the width is more than 4096");
    indent.assign(static_cast<size_t>(width), ' ');
  }
  bool with_blank = parameters.flag(2, false);
  runtime.refuse_undefined(self);
  if (!self.is_text()) {
    runtime.error(format("indent: expected a string, found {}", runtime.type_name(self)));
  }
  MarkedString text = self.text().marked;
  text.append("\n", false);
  std::vector<MarkedString> lines = split_lines(text, false);
  MarkedString result;
  if (parameters.flag(1, false)) result.append(indent, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.append("\n", false);
    if (i > 0 && (with_blank || !lines[i].empty())) result.append(indent, false);
    result.append(lines[i]);
    if (result.size() > runtime.limits().max_memory_bytes) {
      runtime.error("indent makes too long a text");
    }
  }
  return runtime.heap().text(std::move(result));
}

Value filter_truncate(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  int64_t length = parameters.integer(0, 255);
  std::string_view end = parameters.bytes_or(2, "...");
  int64_t leeway = parameters.has_value(3) ? parameters.integer(3, 5) : 5;
  auto end_length = static_cast<int64_t>(count_points(end));
  if (length < end_length) runtime.error("truncate: the length is less than that of the end");
  if (leeway < 0) runtime.error("truncate: the leeway is negative");
  if (runtime.length(self) - leeway <= length) return self;
  if (!self.is_text()) {
    runtime.error(format("truncate: expected a string, found {}", runtime.type_name(self)));
  }
  const MarkedString& marked = self.text().marked;
  MarkedString result =
      marked.part(0, offset_of_point(marked.bytes(), static_cast<size_t>(length - end_length)));
  if (!parameters.flag(1, false)) {
    size_t blank = result.bytes().rfind(' ');
    if (blank != std::string::npos) result = result.part(0, blank);
  }
  result.append(end, false);
  return runtime.heap().text(std::move(result));
}

void quote_url(const MarkedString& text, std::string_view also_safe, MarkedString& out) {
  static constexpr std::string_view kSafe =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~";
  MarkCursor marks(text);
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text.bytes()[i];
    bool is_safe =
        kSafe.find(c) != std::string_view::npos || also_safe.find(c) != std::string_view::npos;
    bool is_plus = c == ' ' && also_safe.empty();
    out.append(
        is_plus   ? "+"
        : is_safe ? std::string(1, c)
                  : format("%{:02X}", static_cast<unsigned>(static_cast<uint8_t>(c))),
        marks.is_input(i));
  }
}

Value filter_urlencode(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "urlencode", arguments, {});
  MarkedString out;
  if (self.is_text() || !runtime.is_iterable(self)) {
    quote_url(runtime.str(self), "/", out);
    return runtime.heap().text(std::move(out));
  }
  Value pairs = self;
  if (self.is(Kind::dict)) pairs = find_dict_method("items")->function(runtime, self, {});
  for (Value pair : runtime.items_of(pairs)) {
    std::vector<Value> two = runtime.items_of(pair);
    if (two.size() != 2) runtime.error("urlencode needs pairs of key and value");
    if (!out.empty()) out.append("&", false);
    quote_url(runtime.str(two[0]), "", out);
    out.append("=", false);
    quote_url(runtime.str(two[1]), "", out);
  }
  return runtime.heap().text(std::move(out));
}

Value filter_wordcount(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "wordcount", arguments, {});
  MarkedString text = runtime.str(self);
  int64_t n = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    char32_t point = next_point(text.bytes(), at);
    bool is_word = point == '_' || is_alpha(point) || is_numeric(point);
    n += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value::integer(n);
}

constexpr std::array kTextFilters{
    Builtin{"capitalize", filter_capitalize},
    Builtin{"center", filter_center},
    Builtin{"e", filter_escape},
    Builtin{"escape", filter_escape},
    Builtin{"forceescape", filter_forceescape},
    Builtin{"format", filter_format},
    Builtin{"indent", filter_indent},
    Builtin{"lower", filter_lower},
    Builtin{"replace", filter_replace},
    Builtin{"safe", filter_safe},
    Builtin{"string", filter_string},
    Builtin{"title", filter_title},
    Builtin{"tojson", filter_tojson},
    Builtin{"trim", filter_trim},
    Builtin{"truncate", filter_truncate},
    Builtin{"upper", filter_upper},
    Builtin{"urlencode", filter_urlencode},
    Builtin{"wordcount", filter_wordcount},
};

}  // namespace

std::span<const Builtin> text_filters() {
  return kTextFilters;
}

}  // namespace nightsweep::jinja
