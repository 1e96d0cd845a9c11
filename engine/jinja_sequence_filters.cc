// Filters over sequences and dicts.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_sort.h"

namespace nightsweep::jinja {
namespace {

Value filter_default(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "default", arguments, {"default_value", "boolean"});
  bool is_missing = self.is_undefined() || (parameters.flag(1, false) && !runtime.truthy(self));
  if (!is_missing) return self;
  return parameters.has(0) ? parameters[0] : runtime.heap().text("");
}

Value filter_length(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "length", arguments, {});
  return Value::integer(runtime.length(self));
}

Value filter_first(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "first", arguments, {});
  if (self.is(Kind::generator)) {
    Generator& generator = self.generator();
    if (generator.next < generator.items.size()) return generator.items[generator.next++];
  } else {
    std::vector<Value> items = runtime.items_of(self);
    if (!items.empty()) return items.front();
  }
  return runtime.heap().undefined("No first item, sequence was empty.");
}

Value filter_last(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "last", arguments, {});
  if (self.is(Kind::generator)) runtime.error("'generator' object is not reversible");
  std::vector<Value> items = runtime.items_of(self);
  if (!items.empty()) return items.back();
  return runtime.heap().undefined("No last item, sequence was empty.");
}

Value filter_list(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "list", arguments, {});
  return runtime.heap().list(runtime.items_of(self));
}

Value filter_reverse(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "reverse", arguments, {});
  if (self.is_text()) {
    return runtime.slice(self, Value::none(), Value::none(), Value::integer(-1));
  }
  std::vector<Value> items = runtime.items_of(self);
  std::reverse(items.begin(), items.end());
  return self.is(Kind::generator) ? runtime.heap().list(std::move(items))
                                  : runtime.heap().generator(std::move(items));
}

Value filter_join(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "join", arguments, {"d", "attribute"});
  MarkedString separator = parameters.has(0) ? runtime.str(parameters[0]) : MarkedString();
  MarkedString result;
  bool is_first = true;
  for (Value item : runtime.items_of(self)) {
    if (!is_first) result.append(separator);
    is_first = false;
    if (parameters.has_value(1)) item = attribute_path(runtime, item, parameters[1]);
    result.append(runtime.str(item));
    if (result.size() > runtime.limits().max_memory_bytes) {
      runtime.error("join makes too long a text");
    }
  }
  return runtime.heap().text(std::move(result));
}

Value filter_items(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "items", arguments, {});
  std::vector<Value> pairs;
  if (!self.is_undefined()) {
    if (!self.is(Kind::dict)) runtime.error("Can only get item pairs from a mapping.");
    pairs = runtime.items_of(find_dict_method("items")->function(runtime, self, arguments));
  }
  return runtime.heap().generator(std::move(pairs));
}

Value filter_dictsort(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  runtime.refuse_undefined(self);
  if (!self.is(Kind::dict)) {
    runtime.error(format("dictsort needs a dict, found {}", runtime.type_name(self)));
  }
  std::string_view by = parameters.bytes_or(1, "key");
  if (by != "key" && by != "value") runtime.error("You can only sort by either 'key' or 'value'");
  std::vector<Value> pairs;
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().entries()) {
    pairs.push_back(runtime.heap().tuple({key, value}));
    Value sort_key = by == "key" ? key : value;
    keys.push_back(parameters.flag(0, false) ? sort_key : without_case(runtime, sort_key));
  }
  return runtime.heap().list(sorted_by_keys(runtime, pairs, keys, parameters.flag(2, false)));
}

Value filter_sort(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  bool is_case_sensitive = parameters.flag(1, false);
  std::vector<Value> paths;
  if (parameters.has_value(2) && parameters[2].is_text()) {
    Arguments comma;
    comma.positional.push_back(runtime.heap().text(","));
    paths = runtime.items_of(find_text_method("split")->function(runtime, parameters[2], comma));
  } else if (parameters.has_value(2)) {
    paths.push_back(parameters[2]);
  }
  std::vector<Value> items = runtime.items_of(self);
  std::vector<Value> keys;
  for (Value item : items) {
    std::vector<Value> parts;
    if (paths.empty()) parts.push_back(item);
    for (Value path : paths)
      parts.push_back(attribute_path(runtime, item, path));
    if (!is_case_sensitive) {
      for (Value& part : parts)
        part = without_case(runtime, part);
    }
    keys.push_back(runtime.heap().list(std::move(parts)));
  }
  return runtime.heap().list(sorted_by_keys(runtime, items, keys, parameters.flag(0, false)));
}

// The key by which min, max, unique and groupby compare.
Value key_of(Runtime& runtime, Value item, bool is_case_sensitive, bool has_path, Value path) {
  if (has_path) item = attribute_path(runtime, item, path);
  return is_case_sensitive ? item : without_case(runtime, item);
}

Value filter_unique(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> kept;
  for (Value item : runtime.items_of(self)) {
    Value key = runtime.key_checked(
        key_of(runtime, item, parameters.flag(0, false), parameters.has_value(1), parameters[1]));
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    kept.push_back(item);
  }
  return runtime.heap().generator(std::move(kept));
}

template <int kWanted>
Value filter_extreme(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "min", arguments, {"case_sensitive", "attribute"});
  Value best;
  Value best_key;
  bool is_first = true;
  for (Value item : runtime.items_of(self)) {
    Value key =
        key_of(runtime, item, parameters.flag(0, false), parameters.has_value(1), parameters[1]);
    if (!is_first && runtime.order(key, best_key, kWanted < 0 ? "<" : ">") != kWanted) continue;
    best = item;
    best_key = key;
    is_first = false;
  }
  return is_first ? runtime.heap().undefined("No aggregated item, sequence was empty.") : best;
}

Value filter_groupby(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(
      runtime, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  bool is_case_sensitive = parameters.flag(2, false);
  std::vector<Value> items = runtime.items_of(self);
  auto name_of = [&](Value item) {
    Value name = attribute_path(runtime, item, parameters[0]);
    return name.is_undefined() && parameters.has_value(1) ? parameters[1] : name;
  };
  auto group_key = [&](Value item) {
    Value name = name_of(item);
    return is_case_sensitive ? name : without_case(runtime, name);
  };
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (Value item : items)
    keys.push_back(group_key(item));
  items = sorted_by_keys(runtime, items, keys, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    Value key = group_key(items[i]);
    Value name = name_of(items[i]);
    std::vector<Value> members;
    while (i < items.size() && runtime.equal(group_key(items[i]), key))
      members.push_back(items[i++]);
    if (members.empty()) members.push_back(items[i++]);  // a key that is not equal to itself: NaN
    groups.push_back(runtime.heap().tuple({name, runtime.heap().list(std::move(members))}));
    groups.back().sequence().is_group = true;
  }
  return runtime.heap().list(std::move(groups));
}

Value filter_sum(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "sum", arguments, {"attribute", "start"});
  Value total = parameters.value_or(1, Value::integer(0));
  for (Value item : runtime.items_of(self)) {
    if (parameters.has_value(0)) item = attribute_path(runtime, item, parameters[0]);
    total = apply_binary(runtime, BinaryOperator::add, total, item);
  }
  return total;
}

Value filter_batch(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "batch", arguments, {"linecount", "fill_with"}, 1);
  int64_t size = parameters.integer(0, 0);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (Value item : runtime.items_of(self)) {
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(runtime.heap().list(std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    while (parameters.has_value(1) && static_cast<int64_t>(row.size()) < size) {
      runtime.step();
      runtime.heap().charge(sizeof(Value));
      row.push_back(parameters[1]);
    }
    rows.push_back(runtime.heap().list(std::move(row)));
  }
  return runtime.heap().generator(std::move(rows));
}

Value filter_slice(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "slice", arguments, {"slices", "fill_with"}, 1);
  int64_t n_slices = parameters.integer(0, 0);
  if (n_slices <= 0) runtime.error("slice: the number of slices must be positive");
  std::vector<Value> items = runtime.items_of(self);
  auto n = static_cast<int64_t>(items.size());
  int64_t n_longer = n % n_slices;
  std::vector<Value> slices;
  auto next = items.begin();
  for (int64_t i = 0; i < n_slices; ++i) {
    runtime.step();
    auto end = next + n / n_slices + (i < n_longer ? 1 : 0);
    std::vector<Value> slice(next, end);
    if (parameters.has_value(1) && i >= n_longer) slice.push_back(parameters[1]);
    slices.push_back(runtime.heap().list(std::move(slice)));
    next = end;
  }
  return runtime.heap().generator(std::move(slices));
}

Value filter_attr(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "attr", arguments, {"name"}, 1);
  MarkedString name = runtime.str(parameters[0]);
  if (auto value = runtime.own_attribute(self, name.bytes())) return *value;
  return runtime.heap().undefined(
      format("'{} object' has no attribute '{}'", runtime.type_name(self), name.bytes()));
}

// What follows the name of a filter or test in map('name', ...) and select('name', ...).
Arguments rest_of(const Arguments& arguments, size_t first) {
  Arguments rest;
  rest.positional.assign(
      arguments.positional.begin() + static_cast<ptrdiff_t>(first), arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

// map, select and their kin look at nothing, not even at their arguments, where the value is false.
Value filter_map(Runtime& runtime, Value self, const Arguments& arguments) {
  std::vector<Value> mapped;
  if (!runtime.truthy(self)) return runtime.heap().generator(std::move(mapped));
  if (arguments.positional.empty() && !arguments.named.empty()) {
    Parameters parameters(runtime, "map", arguments, {"attribute", "default"}, 0);
    if (!parameters.has(0)) runtime.error("map requires a filter argument");
    for (Value item : runtime.items_of(self)) {
      Value value = attribute_path(runtime, item, parameters[0]);
      mapped.push_back(value.is_undefined() && parameters.has_value(1) ? parameters[1] : value);
    }
    return runtime.heap().generator(std::move(mapped));
  }
  if (arguments.positional.empty() || !arguments.positional[0].is_text()) {
    runtime.error("map requires a filter argument");
  }
  const std::string& name = arguments.positional[0].text().bytes();
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) runtime.error(format("No filter named '{}'.", name));
  Arguments rest = rest_of(arguments, 1);
  Runtime::Nesting nesting(runtime, Runtime::Nesting::kNodesPerDepth);
  for (Value item : runtime.items_of(self)) {
    mapped.push_back(runtime.call_builtin(*filter, item, rest));
  }
  return runtime.heap().generator(std::move(mapped));
}

template <bool kWanted, bool kByAttribute>
Value filter_select(Runtime& runtime, Value self, const Arguments& arguments) {
  if (!runtime.truthy(self)) return runtime.heap().generator({});
  size_t n_before = kByAttribute ? 1 : 0;
  if (arguments.positional.size() < n_before) runtime.error("Missing parameter for attribute name");
  const Builtin* test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > n_before) {
    Value name = arguments.positional[n_before];
    if (!name.is_text()) runtime.error("the name of a test must be a string");
    test = find_test(name.text().bytes());
    if (test == nullptr) runtime.error(format("No test named '{}'.", name.text().bytes()));
    rest = rest_of(arguments, n_before + 1);
  }
  std::vector<Value> kept;
  for (Value item : runtime.items_of(self)) {
    Value value = kByAttribute ? attribute_path(runtime, item, arguments.positional[0]) : item;
    Value holds = test == nullptr ? value : runtime.call_builtin(*test, value, rest);
    if (runtime.truthy(holds) == kWanted) kept.push_back(item);
  }
  return runtime.heap().generator(std::move(kept));
}

constexpr std::array kSequenceFilters{
    Builtin{"attr", filter_attr},
    Builtin{"batch", filter_batch},
    Builtin{"count", filter_length},
    Builtin{"d", filter_default},
    Builtin{"default", filter_default},
    Builtin{"dictsort", filter_dictsort},
    Builtin{"first", filter_first},
    Builtin{"groupby", filter_groupby},
    Builtin{"items", filter_items},
    Builtin{"join", filter_join},
    Builtin{"last", filter_last},
    Builtin{"length", filter_length},
    Builtin{"list", filter_list},
    Builtin{"map", filter_map},
    Builtin{"max", filter_extreme<1>},
    Builtin{"min", filter_extreme<-1>},
    Builtin{"reject", filter_select<false, false>},
    Builtin{"rejectattr", filter_select<false, true>},
    Builtin{"reverse", filter_reverse},
    Builtin{"select", filter_select<true, false>},
    Builtin{"selectattr", filter_select<true, true>},
    Builtin{"slice", filter_slice},
    Builtin{"sort", filter_sort},
    Builtin{"sum", filter_sum},
    Builtin{"unique", filter_unique},
};

}  // namespace

std::span<const Builtin> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace nightsweep::jinja
