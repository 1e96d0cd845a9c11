// The filter tojson: Python's json.dumps, without the escaping for HTML that Jinja adds.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_sort.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

class Writer {
 public:
  Writer(Runtime& runtime, const Parameters& parameters) : runtime_(runtime) {
    ensure_ascii_ = parameters.flag(0, false);
    sort_keys_ = parameters.flag(3, false);
    if (parameters.has_value(1)) {
      has_indent_ = true;
      item_separator_.assign(1, ',');
      if (parameters[1].is_text()) {
        indent_ = parameters.text(1).bytes();
      } else {
        int64_t width = std::max<int64_t>(parameters.integer(1, 0), 0);
        if (width > 1024) runtime.error("tojson: the indent is too wide");
        indent_.assign(static_cast<size_t>(width), ' ');
      }
    }
    if (parameters.has_value(2)) {
      std::vector<Value> two = runtime.items_of(parameters[2]);
      if (two.size() != 2 || !two[0].is_text() || !two[1].is_text()) {
        runtime.error("tojson: separators must be two strings");
      }
      item_separator_ = two[0].text().bytes();
      key_separator_ = two[1].text().bytes();
    }
  }

  MarkedString write(Value value) {
    write_value(value, 0);
    return std::move(out_);
  }

 private:
  void put(std::string_view text) { out_.append(text, false); }

  void new_line(size_t level) {
    if (!has_indent_) return;
    put("\n");
    for (size_t i = 0; i < level; ++i)
      put(indent_);
  }

  void write_value(Value value, size_t level) {
    Runtime::Nesting nesting(runtime_);
    runtime_.step();
    if (out_.size() > runtime_.limits().max_output_bytes) {
      runtime_.error("tojson makes too long a text");
    }
    switch (value.kind()) {
      case Kind::none:
        return put("null");
      case Kind::boolean:
        return put(value.as_boolean() ? "true" : "false");
      case Kind::integer:
        return put(format("{}", value.as_integer()));
      case Kind::real:
        return put(real_text(value.as_real()));
      case Kind::text:
        return write_text(value.text().marked);
      case Kind::list:
      case Kind::tuple:
        return write_items(value.sequence().items, level);
      case Kind::dict:
        return write_dict(value.dict(), level);
      default:
        runtime_.error(
            format("Object of type {} is not JSON serializable", runtime_.type_name(value)));
    }
  }

  static std::string real_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return print_real(value);
  }

  void write_items(const std::vector<Value>& items, size_t level) {
    if (items.empty()) return put("[]");
    put("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(item_separator_);
      new_line(level + 1);
      write_value(items[i], level + 1);
    }
    new_line(level);
    put("]");
  }

  void write_dict(const Dict& dict, size_t level) {
    if (dict.entries().empty()) return put("{}");
    std::vector<Value> keys;
    for (const auto& entry : dict.entries())
      keys.push_back(entry.first);
    if (sort_keys_) keys = sorted_by_keys(runtime_, keys, keys, false);
    put("{");
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i > 0) put(item_separator_);
      new_line(level + 1);
      write_key(keys[i]);
      put(key_separator_);
      write_value(*dict.find(keys[i]), level + 1);
    }
    new_line(level);
    put("}");
  }

  void write_key(Value key) {
    switch (key.kind()) {
      case Kind::text:
        return write_text(key.text().marked);
      case Kind::none:
        return put("\"null\"");
      case Kind::boolean:
        return put(key.as_boolean() ? "\"true\"" : "\"false\"");
      case Kind::integer:
        return put(format("\"{}\"", key.as_integer()));
      case Kind::real:
        return put(format("\"{}\"", real_text(key.as_real())));
      default:
        runtime_.error(
            format("keys must be str, int, float, bool or None, not {}", runtime_.type_name(key)));
    }
  }

  void write_text(const MarkedString& text) {
    runtime_.step_bytes(text.size());
    put("\"");
    MarkCursor marks(text);
    const std::string& bytes = text.bytes();
    std::string piece;
    size_t plain_begin = 0;
    for (size_t at = 0; at < bytes.size();) {
      size_t begin = at;
      auto byte = static_cast<uint8_t>(bytes[at]);
      if (byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x7F || !ensure_ascii_)) {
        ++at;
        continue;
      }
      char32_t point = next_point(bytes, at);
      piece.clear();
      escape(piece, point);
      out_.append(text, plain_begin, begin);
      out_.append(piece, marks.is_input(begin));
      plain_begin = at;
    }
    out_.append(text, plain_begin, bytes.size());
    put("\"");
  }

  static void escape(std::string& out, char32_t point) {
    static constexpr std::string_view kPlain = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kLetters = "\"\\bfnrt";
    size_t which = point < 0x80 ? kPlain.find(static_cast<char>(point)) : std::string_view::npos;
    auto code = static_cast<uint32_t>(point);
    if (which != std::string_view::npos) {
      out.assign(1, '\\').push_back(kLetters[which]);
    } else if (code == 0x7F) {
      out.assign(1, '\x7F');
    } else if (code < 0x10000) {
      out = format("\\u{:04x}", code);
    } else {
      code -= 0x10000;
      out = format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
    }
  }

  Runtime& runtime_;
  MarkedString out_;
  bool ensure_ascii_ = false;
  bool sort_keys_ = false;
  bool has_indent_ = false;
  std::string indent_;
  std::string item_separator_ = ", ";
  std::string key_separator_ = ": ";
};

}  // namespace

Value filter_tojson(Runtime& runtime, Value self, const Arguments& arguments) {
  // The order of transformers, which is what chat templates are written for.
  Parameters parameters(
      runtime, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return runtime.heap().text(Writer(runtime, parameters).write(self));
}

}  // namespace nightsweep::jinja
