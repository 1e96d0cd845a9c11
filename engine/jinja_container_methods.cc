// The methods of list, tuple and dict.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_sort.h"

namespace nightsweep::jinja {
namespace {

Value list_append(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "append", arguments, {"object"}, 1);
  runtime.heap().charge(sizeof(Value));
  self.sequence().items.push_back(parameters[0]);
  return Value::none();
}

Value list_extend(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "extend", arguments, {"iterable"}, 1);
  std::vector<Value> more = runtime.items_of(parameters[0]);
  runtime.heap().charge(more.size() * sizeof(Value));
  auto& items = self.sequence().items;
  items.insert(items.end(), more.begin(), more.end());
  return Value::none();
}

Value list_insert(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "insert", arguments, {"index", "object"}, 2);
  auto& items = self.sequence().items;
  auto n = static_cast<int64_t>(items.size());
  int64_t index = parameters.integer(0, 0);
  if (index < 0) index = std::max<int64_t>(index, -n) + n;
  runtime.heap().charge(sizeof(Value));
  runtime.step(items.size() / 16);
  items.insert(items.begin() + std::min(index, n), parameters[1]);
  return Value::none();
}

Value list_pop(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "pop", arguments, {"index"});
  auto& items = self.sequence().items;
  auto n = static_cast<int64_t>(items.size());
  int64_t index = parameters.integer(0, -1);
  if (n == 0) runtime.error("pop from empty list");
  if (index < 0) index += n;
  if (index < 0 || index >= n) runtime.error("pop index out of range");
  runtime.step(items.size() / 16);
  Value value = items[static_cast<size_t>(index)];
  items.erase(items.begin() + index);
  return value;
}

Value list_remove(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "remove", arguments, {"value"}, 1);
  auto& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!runtime.equal(items[i], parameters[0])) continue;
    items.erase(items.begin() + static_cast<ptrdiff_t>(i));
    return Value::none();
  }
  runtime.error("list.remove(x): x not in list");
}

Value list_reverse(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "reverse", arguments, {});
  auto& items = self.sequence().items;
  runtime.step(items.size() / 8);
  std::reverse(items.begin(), items.end());
  return Value::none();
}

Value list_sort(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "sort", arguments, {"reverse"});
  self.sequence().items = sorted_by_keys(
      runtime, self.sequence().items, self.sequence().items, parameters.flag(0, false));
  return Value::none();
}

Value list_clear(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "clear", arguments, {});
  self.sequence().items.clear();
  return Value::none();
}

Value list_copy(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "copy", arguments, {});
  return runtime.heap().list(self.sequence().items);
}

Value sequence_count(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "count", arguments, {"value"}, 1);
  int64_t n = 0;
  for (Value item : self.sequence().items)
    n += runtime.equal(item, parameters[0]) ? 1 : 0;
  return Value::integer(n);
}

Value sequence_index(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "index", arguments, {"value"}, 1);
  const auto& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (runtime.equal(items[i], parameters[0])) return Value::integer(static_cast<int64_t>(i));
  }
  runtime.error(
      format("{} is not in {}", runtime.repr(parameters[0]).bytes(), runtime.type_name(self)));
}

template <ViewKind kShows>
Value dict_view(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "dict view", arguments, {});
  auto* view = runtime.heap().make<DictView>();
  view->of = &self.dict();
  view->shows = kShows;
  return Value::object(Kind::dict_view, view);
}

Value dict_get(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "get", arguments, {"key", "default"}, 1);
  const Value* value = self.dict().find(runtime.key_checked(parameters[0]));
  return value != nullptr ? *value : parameters.value_or(1, Value::none());
}

Value dict_pop(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "pop", arguments, {"key", "default"}, 1);
  const Value* found = self.dict().find(runtime.key_checked(parameters[0]));
  if (found == nullptr) {
    if (!parameters.has(1)) {
      runtime.error(format("the dict has no key {}", runtime.repr(parameters[0]).bytes()));
    }
    return parameters[1];
  }
  Value value = *found;
  runtime.step(self.dict().entries().size() / 4);
  self.dict().erase(parameters[0]);
  return value;
}

Value dict_popitem(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "popitem", arguments, {});
  if (self.dict().entries().empty()) runtime.error("popitem(): dictionary is empty");
  auto [key, value] = self.dict().entries().back();
  runtime.step(self.dict().entries().size() / 4);
  self.dict().erase(key);
  return runtime.heap().tuple({key, value});
}

Value dict_setdefault(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "setdefault", arguments, {"key", "default"}, 1);
  const Value* found = self.dict().find(runtime.key_checked(parameters[0]));
  if (found != nullptr) return *found;
  runtime.heap().charge(sizeof(Dict::Entry));
  Value value = parameters.value_or(1, Value::none());
  self.dict().set(parameters[0], value);
  return value;
}

Value dict_update(Runtime& runtime, Value self, const Arguments& arguments) {
  if (arguments.positional.size() > 1) runtime.error("update() takes at most 1 argument");
  auto set = [&](Value key, Value value) {
    runtime.heap().charge(sizeof(Dict::Entry));
    self.dict().set(runtime.key_checked(key), value);
  };
  if (!arguments.positional.empty()) {
    Value other = arguments.positional[0];
    runtime.refuse_undefined(other);
    if (other.is(Kind::dict)) {
      std::vector<Dict::Entry> entries = other.dict().entries();
      for (const auto& [key, value] : entries)
        set(key, value);
    } else {
      for (Value pair : runtime.items_of(other)) {
        std::vector<Value> two = runtime.items_of(pair);
        if (two.size() != 2) runtime.error("update() needs pairs of key and value");
        set(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named)
    set(runtime.heap().text(name), value);
  return Value::none();
}

Value dict_clear(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "clear", arguments, {});
  self.dict().clear();
  return Value::none();
}

Value dict_copy(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "copy", arguments, {});
  auto* copy = runtime.heap().make<Dict>();
  runtime.heap().charge(self.dict().entries().size() * sizeof(Dict::Entry));
  for (const auto& [key, value] : self.dict().entries())
    copy->set(key, value);
  return Value::object(Kind::dict, copy);
}

constexpr std::array kListMethods{
    Builtin{"append", list_append}, Builtin{"clear", list_clear},
    Builtin{"copy", list_copy},     Builtin{"count", sequence_count},
    Builtin{"extend", list_extend}, Builtin{"index", sequence_index},
    Builtin{"insert", list_insert}, Builtin{"pop", list_pop},
    Builtin{"remove", list_remove}, Builtin{"reverse", list_reverse},
    Builtin{"sort", list_sort},
};
constexpr std::array kTupleMethods{
    Builtin{"count", sequence_count},
    Builtin{"index", sequence_index},
};
constexpr std::array kDictMethods{
    Builtin{"clear", dict_clear},
    Builtin{"copy", dict_copy},
    Builtin{"get", dict_get},
    Builtin{"items", dict_view<ViewKind::items>},
    Builtin{"keys", dict_view<ViewKind::keys>},
    Builtin{"pop", dict_pop},
    Builtin{"popitem", dict_popitem},
    Builtin{"setdefault", dict_setdefault},
    Builtin{"update", dict_update},
    Builtin{"values", dict_view<ViewKind::values>},
};

}  // namespace

std::span<const Builtin> list_methods() {
  return kListMethods;
}
std::span<const Builtin> tuple_methods() {
  return kTupleMethods;
}
std::span<const Builtin> dict_methods() {
  return kDictMethods;
}

}  // namespace nightsweep::jinja
