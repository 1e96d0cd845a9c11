#include "engine/jinja_runtime.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
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

void Runtime::error(const std::string& text) const {
  throw TemplateError(line_ == 0 ? text : format("line {}: {}", line_, text));
}

void Runtime::fail_undefined(Value value) const {
  error(value.reason() == nullptr ? "a value is undefined" : value.reason()->bytes());
}

Value Runtime::from_json(const Json& json, bool is_input) {
  Nesting nesting(*this);
  if (json.is_null()) return Value::none();
  if (json.is_bool()) return Value::boolean(json.as_bool());
  if (json.is_integer()) return Value::integer(json.as_integer());
  if (json.is_double()) return Value::real(json.as_double());
  if (json.is_string()) return heap_.text(MarkedString(json.as_string(), is_input));
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array())
      items.push_back(from_json(item, is_input));
    return heap_.list(std::move(items));
  }
  auto* dict = heap_.make<Dict>();
  for (const auto& [key, value] : json.as_object()) {
    heap_.charge(sizeof(Dict::Entry));
    Value name = heap_.text(MarkedString(key, is_input));
    dict->set(name, from_json(value, is_input));
  }
  return Value::object(Kind::dict, dict);
}

bool Runtime::truthy(Value value) const {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.as_boolean();
    case Kind::integer:
      return value.as_integer() != 0;
    case Kind::real:
      return value.as_real() != 0;
    case Kind::text:
      return !value.text().bytes().empty();
    case Kind::list:
    case Kind::tuple:
      return !value.sequence().items.empty();
    case Kind::dict:
      return !value.dict().entries().empty();
    case Kind::range:
      return value.range().size() > 0;
    case Kind::dict_view:
      return !value.dict_view().of->entries().empty();
    case Kind::generator:
    case Kind::name_space:
    case Kind::host:
      return true;
  }
  return false;
}

std::string_view Runtime::type_name(Value value) const {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return value.text().is_markup ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::dict_view: {
      ViewKind shows = value.dict_view().shows;
      return shows == ViewKind::keys     ? "dict_keys"
             : shows == ViewKind::values ? "dict_values"
                                         : "dict_items";
    }
    case Kind::generator:
      return "generator";
    case Kind::name_space:
      return "Namespace";
    case Kind::host:
      return value.host().type_name();
  }
  return "object";
}

bool Runtime::equal(Value a, Value b) {
  step();
  if (a.is_text() && b.is_text()) {
    step_bytes(std::min(a.text().marked.size(), b.text().marked.size()));
    return a.text().bytes() == b.text().bytes();
  }
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.as_object() == b.as_object()) return true;
  if (a.is_sequence()) {
    Nesting nesting(*this);
    const auto& x = a.sequence().items;
    const auto& y = b.sequence().items;
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!equal(x[i], y[i])) return false;
    }
    return true;
  }
  if (a.is(Kind::dict)) return equal_dicts(a.dict(), b.dict());
  if (a.is(Kind::range)) {
    const Range& x = a.range();
    const Range& y = b.range();
    int64_t n = x.size();
    return n == y.size() && (n == 0 || x.start == y.start) && (n <= 1 || x.step == y.step);
  }
  return false;
}

bool Runtime::equal_dicts(const Dict& a, const Dict& b) {
  Nesting nesting(*this);
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

int Runtime::order(Value a, Value b, std::string_view symbol) {
  step();
  refuse_undefined(a);
  refuse_undefined(b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_text() && b.is_text()) {
    step_bytes(std::min(a.text().marked.size(), b.text().marked.size()));
    int result = a.text().bytes().compare(b.text().bytes());
    return result < 0 ? -1 : result > 0 ? 1 : 0;
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    Nesting nesting(*this);
    const auto& x = a.sequence().items;
    const auto& y = b.sequence().items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(x[i], y[i])) return order(x[i], y[i], symbol);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  error(format(
      "'{}' not supported between instances of '{}' and '{}'", symbol, type_name(a), type_name(b)));
}

bool Runtime::contains(Value container, Value item) {
  switch (container.kind()) {
    case Kind::undefined:
      return false;
    case Kind::text:
      if (item.is_undefined()) fail_undefined(item);
      if (!item.is_text()) {
        error(format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      step_bytes(container.text().marked.size());
      return container.text().bytes().find(item.text().bytes()) != std::string::npos;
    case Kind::dict:
      return container.dict().find(key_checked(item)) != nullptr;
    case Kind::dict_view:
      if (container.dict_view().shows == ViewKind::keys) {
        return container.dict_view().of->find(key_checked(item)) != nullptr;
      }
      break;
    case Kind::range: {
      if (!item.is_integral()) return false;
      const Range& range = container.range();
      int64_t n = range.size();
      if (n == 0) return false;
      int64_t value = item.as_integer();
      int64_t low = std::min(range.start, range.at(n - 1));
      int64_t high = std::max(range.start, range.at(n - 1));
      return value >= low && value <= high &&
             (static_cast<__int128>(value) - range.start) % range.step == 0;
    }
    default:
      break;
  }
  if (!is_iterable(container)) {
    error(format("argument of type '{}' is not iterable", type_name(container)));
  }
  if (container.is_sequence()) {
    const auto& items = container.sequence().items;
    return std::any_of(items.begin(), items.end(), [&](Value value) { return equal(value, item); });
  }
  for (Value value : items_of(container)) {
    if (equal(value, item)) return true;
  }
  return false;
}

bool Runtime::is_iterable(Value value) const {
  switch (value.kind()) {
    case Kind::none:
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
    case Kind::name_space:
      return false;
    case Kind::host:
      return value.host().items() != nullptr;
    default:
      return true;
  }
}

std::vector<Value> Runtime::items_of(Value value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::undefined:
      break;
    case Kind::text: {
      const MarkedString& text = value.text().marked;
      step(value.text().n_points);
      items.reserve(value.text().n_points);
      for (size_t at = 0; at < text.size();) {
        size_t begin = at;
        next_point(text.bytes(), at);
        items.push_back(heap_.text(text.part(begin, at)));
      }
      break;
    }
    case Kind::list:
    case Kind::tuple:
      items = value.sequence().items;
      break;
    case Kind::dict:
      for (const auto& entry : value.dict().entries())
        items.push_back(entry.first);
      break;
    case Kind::dict_view: {
      const DictView& view = value.dict_view();
      for (const auto& [key, member] : view.of->entries()) {
        items.push_back(
            view.shows == ViewKind::keys     ? key
            : view.shows == ViewKind::values ? member
                                             : heap_.tuple({key, member}));
      }
      break;
    }
    case Kind::range: {
      int64_t n = value.range().size();
      step(static_cast<uint64_t>(n));
      for (int64_t i = 0; i < n; ++i)
        items.push_back(Value::integer(value.range().at(i)));
      break;
    }
    case Kind::generator: {
      Generator& generator = value.generator();
      items.assign(
          generator.items.begin() + static_cast<ptrdiff_t>(generator.next), generator.items.end());
      generator.next = generator.items.size();
      break;
    }
    default:
      if (value.is(Kind::host) && value.host().items() != nullptr) return *value.host().items();
      error(format("'{}' object is not iterable", type_name(value)));
  }
  // Short-lived, yet it must not be free: a loop may copy the same list again and again.
  step(items.size() / 8);
  return items;
}

bool Runtime::has_length(Value value) const {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::dict_view:
      return true;
    case Kind::host:
      return value.host().items() != nullptr;
    default:
      return false;
  }
}

int64_t Runtime::length(Value value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return static_cast<int64_t>(value.text().n_points);
    case Kind::list:
    case Kind::tuple:
      return static_cast<int64_t>(value.sequence().items.size());
    case Kind::dict:
      return static_cast<int64_t>(value.dict().entries().size());
    case Kind::range:
      return value.range().size();
    case Kind::dict_view:
      return static_cast<int64_t>(value.dict_view().of->entries().size());
    default:
      if (value.is(Kind::host) && value.host().items() != nullptr) {
        return static_cast<int64_t>(value.host().items()->size());
      }
      error(format("object of type '{}' has no len()", type_name(value)));
  }
}

Value Runtime::key_checked(Value key) const {
  if (!is_hashable(key)) error(format("unhashable type: '{}'", type_name(key)));
  return key;
}

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

Value Runtime::call(Value callee, const Arguments& arguments) {
  refuse_undefined(callee);
  if (!callee.is(Kind::host) || !callee.host().is_callable()) {
    error(format("'{}' object is not callable", type_name(callee)));
  }
  step();
  return callee.host().call(*this, arguments);
}

Value Runtime::call_builtin(const Builtin& builtin, Value self, const Arguments& arguments) {
  step();
  if (self.is_text()) step_bytes(self.text().marked.size());
  for (Value argument : arguments.positional) {
    if (argument.is_text()) step_bytes(argument.text().marked.size());
  }
  return builtin.function(*this, self, arguments);
}

}  // namespace nightsweep::jinja
