#include "engine/jinja_runtime.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
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
