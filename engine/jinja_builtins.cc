#include "engine/jinja_builtins.h"

#include <algorithm>
#include <unordered_map>

#include "base/format.h"
#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_runtime.h"

namespace nightsweep::jinja {
namespace {

using Table = std::unordered_map<std::string_view, const Builtin*>;

Table table_of(std::initializer_list<std::span<const Builtin>> lists) {
  Table table;
  for (auto list : lists) {
    for (const Builtin& builtin : list)
      table.emplace(builtin.name, &builtin);
  }
  return table;
}

const Builtin* find(const Table& table, std::string_view name) {
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  static const Table kTable = table_of({text_filters(), sequence_filters(), number_filters()});
  return find(kTable, name);
}
const Builtin* find_test(std::string_view name) {
  static const Table kTable = table_of({tests()});
  return find(kTable, name);
}
const Builtin* find_text_method(std::string_view name) {
  static const Table kTable = table_of({text_methods(), text_class_methods()});
  return find(kTable, name);
}
const Builtin* find_list_method(std::string_view name) {
  static const Table kTable = table_of({list_methods()});
  return find(kTable, name);
}
const Builtin* find_tuple_method(std::string_view name) {
  static const Table kTable = table_of({tuple_methods()});
  return find(kTable, name);
}
const Builtin* find_dict_method(std::string_view name) {
  static const Table kTable = table_of({dict_methods()});
  return find(kTable, name);
}
const Builtin* find_global(std::string_view name) {
  static const Table kTable = table_of({globals()});
  return find(kTable, name);
}

Parameters::Parameters(
    Runtime& runtime,
    std::string_view function,
    const Arguments& arguments,
    std::initializer_list<std::string_view> names,
    size_t n_required)
    : runtime_(runtime), function_(function), names_(names) {
  if (arguments.positional.size() > names.size()) {
    runtime.error(format(
        "{}() takes at most {} arguments, found {}", function, names.size(),
        arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = arguments.positional[i];
    is_given_[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto* it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) runtime.error(format("{}() has no argument '{}'", function, name));
    auto i = static_cast<size_t>(it - names.begin());
    if (is_given_[i]) runtime.error(format("{}() got '{}' twice", function, name));
    values_[i] = value;
    is_given_[i] = true;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (!is_given_[i]) runtime.error(format("{}() needs the argument '{}'", function, name_of(i)));
  }
}

std::string_view Parameters::name_of(size_t i) const {
  return *(names_.begin() + i);
}

bool Parameters::flag(size_t i, bool fallback) const {
  return is_given_[i] ? runtime_.truthy(values_[i]) : fallback;
}

int64_t Parameters::integer(size_t i, int64_t fallback) const {
  if (!is_given_[i]) return fallback;
  runtime_.refuse_undefined(values_[i]);
  if (!values_[i].is_integral()) {
    runtime_.error(format(
        "{}(): '{}' must be an integer, found {}", function_, name_of(i),
        runtime_.type_name(values_[i])));
  }
  return values_[i].as_integer();
}

const Text& Parameters::text(size_t i) const {
  runtime_.refuse_undefined(values_[i]);
  if (!values_[i].is_text()) {
    runtime_.error(format(
        "{}(): '{}' must be a string, found {}", function_, name_of(i),
        runtime_.type_name(values_[i])));
  }
  return values_[i].text();
}

std::string_view Parameters::bytes_or(size_t i, std::string_view fallback) const {
  return has_value(i) ? std::string_view(text(i).bytes()) : fallback;
}

}  // namespace nightsweep::jinja
