// The methods of str.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_format.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_text.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

constexpr size_t kNotFound = std::string::npos;

Value text_like(Runtime& runtime, Value self, MarkedString text) {
  return runtime.heap().text(std::move(text), self.text().is_markup);
}

Value list_of(Runtime& runtime, Value self, std::vector<MarkedString> parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  runtime.step(parts.size());
  for (MarkedString& part : parts)
    items.push_back(text_like(runtime, self, std::move(part)));
  return runtime.heap().list(std::move(items));
}

template <CaseChange kChange>
Value method_case(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "str method", arguments, {});
  return text_like(runtime, self, change_case(self.text().marked, kChange));
}

template <bool kLeft, bool kRight>
Value method_strip(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "strip", arguments, {"chars"});
  if (!parameters.has_value(0)) {
    return text_like(runtime, self, strip(self.text().marked, nullptr, kLeft, kRight));
  }
  std::string_view chars = parameters.text(0).bytes();
  runtime.step(chars.size() * self.text().n_points / 16);
  return text_like(runtime, self, strip(self.text().marked, &chars, kLeft, kRight));
}

template <bool kFromRight>
Value method_split(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "split", arguments, {"sep", "maxsplit"});
  int64_t limit = parameters.integer(1, -1);
  std::string_view separator;
  bool has_separator = parameters.has_value(0);
  if (has_separator) separator = parameters.text(0).bytes();
  if (has_separator && separator.empty()) runtime.error("empty separator");
  const std::string_view* given = has_separator ? &separator : nullptr;
  const MarkedString& text = self.text().marked;
  return list_of(
      runtime, self, kFromRight ? split_right(text, given, limit) : split(text, given, limit));
}

Value method_splitlines(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "splitlines", arguments, {"keepends"});
  return list_of(runtime, self, split_lines(self.text().marked, parameters.flag(0, false)));
}

template <bool kFromRight>
Value method_partition(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "partition", arguments, {"sep"}, 1);
  const Text& separator = parameters.text(0);
  if (separator.marked.empty()) runtime.error("empty separator");
  const MarkedString& text = self.text().marked;
  size_t found =
      kFromRight ? text.bytes().rfind(separator.bytes()) : text.bytes().find(separator.bytes());
  MarkedString empty;
  if (found == kNotFound) {
    Value blank = text_like(runtime, self, empty);
    return kFromRight ? runtime.heap().tuple({blank, blank, self})
                      : runtime.heap().tuple({self, blank, blank});
  }
  size_t after = found + separator.marked.size();
  return runtime.heap().tuple(
      {text_like(runtime, self, text.part(0, found)),
       text_like(runtime, self, text.part(found, after)),
       text_like(runtime, self, text.part(after, text.size()))});
}

// The part of the text that `start` and `end` of find and its like choose, in bytes.
MarkedString::Range
window(const Text& text, const Parameters& parameters, size_t first, bool& is_valid) {
  auto n = static_cast<int64_t>(text.n_points);
  auto bound = [&](size_t i, int64_t fallback) {
    int64_t value = parameters.has_value(i) ? parameters.integer(i, fallback) : fallback;
    return value < 0 ? std::max<int64_t>(value, -n) + n : value;
  };
  int64_t start = bound(first, 0);
  int64_t end = std::min(bound(first + 1, n), n);
  is_valid = start <= end;
  if (!is_valid) return {0, 0};
  return {
      offset_of_point(text.bytes(), static_cast<size_t>(start)),
      offset_of_point(text.bytes(), static_cast<size_t>(end))};
}

template <bool kFromRight, bool kMustExist>
Value method_find(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "find", arguments, {"sub", "start", "end"}, 1);
  const Text& text = self.text();
  const std::string& wanted = parameters.text(0).bytes();
  bool is_valid = false;
  auto range = window(text, parameters, 1, is_valid);
  std::string_view part =
      std::string_view(text.bytes()).substr(range.begin, range.end - range.begin);
  size_t found = !is_valid ? kNotFound : kFromRight ? part.rfind(wanted) : part.find(wanted);
  if (found == kNotFound) {
    if (kMustExist) runtime.error("substring not found");
    return Value::integer(-1);
  }
  size_t offset = range.begin + found;
  return Value::integer(
      static_cast<int64_t>(count_points(std::string_view(text.bytes()).substr(0, offset))));
}

Value method_count(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "count", arguments, {"sub", "start", "end"}, 1);
  const Text& text = self.text();
  const std::string& wanted = parameters.text(0).bytes();
  bool is_valid = false;
  auto range = window(text, parameters, 1, is_valid);
  if (!is_valid) return Value::integer(0);
  std::string_view part =
      std::string_view(text.bytes()).substr(range.begin, range.end - range.begin);
  if (wanted.empty()) return Value::integer(static_cast<int64_t>(count_points(part)) + 1);
  int64_t n = 0;
  for (size_t at = part.find(wanted); at != kNotFound; at = part.find(wanted, at + wanted.size()))
    ++n;
  return Value::integer(n);
}

template <bool kAtEnd>
Value method_starts(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(
      runtime, kAtEnd ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}, 1);
  bool is_valid = false;
  auto range = window(self.text(), parameters, 1, is_valid);
  std::string_view part =
      std::string_view(self.text().bytes()).substr(range.begin, range.end - range.begin);
  auto matches = [&](Value affix) {
    if (!affix.is_text()) {
      runtime.error(format(
          "{} first arg must be str or a tuple of str, not {}", kAtEnd ? "endswith" : "startswith",
          runtime.type_name(affix)));
    }
    const std::string& bytes = affix.text().bytes();
    return is_valid && (kAtEnd ? part.ends_with(bytes) : part.starts_with(bytes));
  };
  if (parameters[0].is(Kind::tuple)) {
    const auto& affixes = parameters[0].sequence().items;
    return Value::boolean(std::any_of(affixes.begin(), affixes.end(), matches));
  }
  return Value::boolean(matches(parameters[0]));
}

template <bool kSuffix>
Value method_remove(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "removeprefix", arguments, {"affix"}, 1);
  const std::string& affix = parameters.text(0).bytes();
  const MarkedString& text = self.text().marked;
  if (kSuffix ? !text.bytes().ends_with(affix) : !text.bytes().starts_with(affix)) return self;
  size_t begin = kSuffix ? 0 : affix.size();
  return text_like(
      runtime, self, text.part(begin, kSuffix ? text.size() - affix.size() : text.size()));
}

Value method_replace(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  const std::string& old = parameters.text(0).bytes();
  const MarkedString& by = parameters.text(1).marked;
  int64_t limit = parameters.has_value(2) ? parameters.integer(2, -1) : -1;
  const MarkedString& text = self.text().marked;
  MarkedString result;
  size_t begin = 0;
  auto add = [&] {
    result.append(by);
    if (result.size() > runtime.limits().max_memory_bytes)
      runtime.error("replace() makes too long a text");
  };
  if (old.empty()) {  // between all characters
    for (size_t at = 0; limit != 0; --limit) {
      add();
      if (at >= text.size()) break;
      next_point(text.bytes(), at);
      result.append(text, begin, at);
      begin = at;
    }
  } else {
    for (; limit != 0; --limit) {
      size_t found = text.bytes().find(old, begin);
      if (found == kNotFound) break;
      result.append(text, begin, found);
      add();
      begin = found + old.size();
    }
  }
  result.append(text, begin, text.size());
  runtime.step_bytes(result.size());
  return text_like(runtime, self, std::move(result));
}

Value method_join(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "join", arguments, {"iterable"}, 1);
  runtime.refuse_undefined(parameters[0]);
  std::vector<Value> items = runtime.items_of(parameters[0]);
  MarkedString result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_text()) {
      runtime.error(format(
          "sequence item {}: expected str instance, {} found", i, runtime.type_name(items[i])));
    }
    if (i > 0) result.append(self.text().marked);
    result.append(items[i].text().marked);
    if (result.size() > runtime.limits().max_memory_bytes)
      runtime.error("join() makes too long a text");
  }
  return text_like(runtime, self, std::move(result));
}

template <Align kAlign>
Value method_pad(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "just", arguments, {"width", "fillchar"}, 1);
  int64_t width = parameters.integer(0, 0);
  std::string_view fill = parameters.has(1) ? std::string_view(parameters.text(1).bytes()) : " ";
  if (count_points(fill) != 1) {
    runtime.error("The fill character must be exactly one character long");
  }
  runtime.heap().charge(static_cast<size_t>(std::max<int64_t>(width, 0)));
  return text_like(runtime, self, pad(self.text().marked, width, kAlign, fill));
}

Value method_zfill(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "zfill", arguments, {"width"}, 1);
  int64_t width = parameters.integer(0, 0);
  runtime.heap().charge(static_cast<size_t>(std::max<int64_t>(width, 0)));
  const MarkedString& text = self.text().marked;
  size_t sign = text.bytes().starts_with('+') || text.bytes().starts_with('-') ? 1 : 0;
  MarkedString result = text.part(0, sign);
  result.append(
      pad(text.part(sign, text.size()), width - static_cast<int64_t>(sign), Align::right, "0"));
  return text_like(runtime, self, std::move(result));
}

Value method_expandtabs(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "expandtabs", arguments, {"tabsize"});
  int64_t width = std::clamp<int64_t>(parameters.integer(0, 8), 0, 1024);
  const MarkedString& text = self.text().marked;
  MarkedString result;
  int64_t column = 0;
  for (size_t at = 0; at < text.size();) {
    size_t begin = at;
    char32_t point = next_point(text.bytes(), at);
    if (point == '\t') {
      int64_t n = width > 0 ? width - column % width : 0;
      result.append(std::string(static_cast<size_t>(n), ' '), false);
      column += n;
      runtime.heap().charge(static_cast<size_t>(n));
    } else {
      result.append(text, begin, at);
      column = point == '\n' || point == '\r' ? 0 : column + 1;
    }
  }
  return text_like(runtime, self, std::move(result));
}

Value method_format(Runtime& runtime, Value self, const Arguments& arguments) {
  return text_like(runtime, self, brace_format(runtime, self.text(), arguments));
}

constexpr std::array kTextMethods{
    Builtin{"capitalize", method_case<CaseChange::capitalize>},
    Builtin{"casefold", method_case<CaseChange::fold>},
    Builtin{"center", method_pad<Align::center>},
    Builtin{"count", method_count},
    Builtin{"endswith", method_starts<true>},
    Builtin{"expandtabs", method_expandtabs},
    Builtin{"find", method_find<false, false>},
    Builtin{"format", method_format},
    Builtin{"index", method_find<false, true>},
    Builtin{"join", method_join},
    Builtin{"ljust", method_pad<Align::left>},
    Builtin{"lower", method_case<CaseChange::lower>},
    Builtin{"lstrip", method_strip<true, false>},
    Builtin{"partition", method_partition<false>},
    Builtin{"removeprefix", method_remove<false>},
    Builtin{"removesuffix", method_remove<true>},
    Builtin{"replace", method_replace},
    Builtin{"rfind", method_find<true, false>},
    Builtin{"rindex", method_find<true, true>},
    Builtin{"rjust", method_pad<Align::right>},
    Builtin{"rpartition", method_partition<true>},
    Builtin{"rsplit", method_split<true>},
    Builtin{"rstrip", method_strip<false, true>},
    Builtin{"split", method_split<false>},
    Builtin{"splitlines", method_splitlines},
    Builtin{"startswith", method_starts<false>},
    Builtin{"strip", method_strip<true, true>},
    Builtin{"swapcase", method_case<CaseChange::swap>},
    Builtin{"title", method_case<CaseChange::title>},
    Builtin{"upper", method_case<CaseChange::upper>},
    Builtin{"zfill", method_zfill},
};

}  // namespace

std::span<const Builtin> text_methods() {
  return kTextMethods;
}

}  // namespace nightsweep::jinja
