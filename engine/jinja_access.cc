// Attributes, items and slices of values.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

struct BoundMethod : HostObject {
  BoundMethod(const Builtin& builtin, Value self) : method(builtin), object(self) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    return runtime.call_builtin(method, object, arguments);
  }
  const Builtin& method;
  Value object;
};

}  // namespace

const Builtin* Runtime::find_method(Value self, std::string_view name) const {
  switch (self.kind()) {
    case Kind::text:
      return find_text_method(name);
    case Kind::list:
      return find_list_method(name);
    case Kind::tuple:
      return find_tuple_method(name);
    case Kind::dict:
      return find_dict_method(name);
    default:
      return nullptr;
  }
}

std::optional<Value> Runtime::own_attribute(Value object, std::string_view name) {
  if (const Builtin* method = find_method(object, name)) {
    return Value::object(Kind::host, heap_.make<BoundMethod>(*method, object));
  }
  if (object.is(Kind::tuple) && object.sequence().is_group) {
    if (name == "grouper") return object.sequence().items[0];
    if (name == "list") return object.sequence().items[1];
  }
  if (object.is(Kind::name_space)) {
    const Value* value = object.dict().find(name);
    if (value != nullptr) return *value;
  }
  if (object.is(Kind::host)) return object.host().attribute(*this, name);
  return std::nullopt;
}

std::optional<Value> Runtime::own_item(Value object, Value index) {
  if (object.is(Kind::dict)) {
    if (!is_hashable(index)) return std::nullopt;
    const Value* value = object.dict().find(index);
    return value == nullptr ? std::nullopt : std::optional<Value>(*value);
  }
  if (!index.is_integral()) return std::nullopt;
  if (!object.is_sequence() && !object.is_text() && !object.is(Kind::range)) return std::nullopt;
  int64_t n = length(object);
  int64_t i = index.as_integer();
  if (i < 0) i += n;
  if (i < 0 || i >= n) return std::nullopt;
  auto position = static_cast<size_t>(i);
  if (object.is_sequence()) return object.sequence().items[position];
  if (object.is(Kind::range)) return Value::integer(object.range().at(i));
  const Text& text = object.text();
  size_t begin = position;
  if (!text.is_ascii()) {
    step_bytes(text.marked.size());
    begin = offset_of_point(text.bytes(), position);
  }
  size_t end = begin;
  next_point(text.bytes(), end);
  return heap_.text(text.marked.part(begin, end), text.is_markup);
}

Value Runtime::attribute(Value object, std::string_view name) {
  refuse_undefined(object);
  if (auto value = own_attribute(object, name)) return *value;
  if (object.is(Kind::dict)) {
    const Value* value = object.dict().find(name);
    if (value != nullptr) return *value;
  }
  return heap_.undefined(format(
      "'{}' has no attribute '{}'",
      object.is_none() ? "None" : format("{} object", type_name(object)), name));
}

Value Runtime::item(Value object, Value index) {
  refuse_undefined(object);
  if (auto value = own_item(object, index)) return *value;
  if (index.is_text()) {
    if (auto value = own_attribute(object, index.text().bytes())) return *value;
  }
  return heap_.undefined(format(
      "'{}' has no {} {}", object.is_none() ? "None" : format("{} object", type_name(object)),
      index.is_text() ? "attribute" : "element", repr(index).bytes()));
}

Value Runtime::slice(Value object, Value start, Value stop, Value step_value) {
  refuse_undefined(object);
  auto is_bound = [](Value value) { return value.is_none() || value.is_integral(); };
  bool is_sliceable = object.is_sequence() || object.is_text() || object.is(Kind::range);
  if (!is_sliceable || !is_bound(start) || !is_bound(stop) || !is_bound(step_value)) {
    return heap_.undefined(format("'{} object' has no such slice", type_name(object)));
  }
  int64_t by = step_value.is_none() ? 1 : step_value.as_integer();
  if (by == 0) error("slice step cannot be zero");
  int64_t n = length(object);
  by = std::clamp<int64_t>(by, -n - 1, n + 1);
  auto bound = [&](Value value, int64_t fallback) {
    if (value.is_none()) return fallback;
    int64_t i = value.as_integer();
    if (i < 0) i = std::max<int64_t>(i, -n - 1) + n;
    return by > 0 ? std::clamp<int64_t>(i, 0, n) : std::clamp<int64_t>(i, -1, n - 1);
  };
  int64_t first = bound(start, by > 0 ? 0 : n - 1);
  int64_t last = bound(stop, by > 0 ? n : -1);
  if (object.is(Kind::range)) {
    const Range& range = object.range();
    auto* result = heap_.make<Range>();
    result->start = range.at(first);
    result->stop = range.at(last);
    if (__builtin_mul_overflow(range.step, by, &result->step)) error("the step is too large");
    return Value::object(Kind::range, result);
  }
  auto goes_on = [&](int64_t i) { return by > 0 ? i < last : i > last; };
  if (object.is_sequence()) {
    std::vector<Value> items;
    for (int64_t i = first; goes_on(i); i += by) {
      items.push_back(object.sequence().items[static_cast<size_t>(i)]);
    }
    step(items.size());
    return object.is(Kind::list) ? heap_.list(std::move(items)) : heap_.tuple(std::move(items));
  }
  const Text& text = object.text();
  step_bytes(text.marked.size());
  if (by == 1) {
    if (first >= last) return heap_.text(MarkedString(), text.is_markup);
    size_t begin = static_cast<size_t>(first);
    size_t end = static_cast<size_t>(last);
    if (!text.is_ascii()) {
      begin = offset_of_point(text.bytes(), begin);
      end = begin +
            offset_of_point(
                std::string_view(text.bytes()).substr(begin), static_cast<size_t>(last - first));
    }
    return heap_.text(text.marked.part(begin, end), text.is_markup);
  }
  std::vector<size_t> offsets;
  offsets.reserve(text.n_points + 1);
  for (size_t at = 0; at < text.marked.size();) {
    offsets.push_back(at);
    next_point(text.bytes(), at);
  }
  offsets.push_back(text.marked.size());
  MarkedString result;
  for (int64_t i = first; goes_on(i); i += by) {
    auto position = static_cast<size_t>(i);
    result.append(text.marked, offsets[position], offsets[position + 1]);
  }
  step(text.n_points);
  return heap_.text(std::move(result), text.is_markup);
}

}  // namespace nightsweep::jinja
