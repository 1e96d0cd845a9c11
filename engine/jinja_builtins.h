// Filters, tests, methods and globals, by name.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "engine/jinja_value.h"

namespace nightsweep::jinja {

class Runtime;

// `self`: what stands before the bar, the `is` or the dot. A test gives a boolean.
using BuiltinFunction = Value (*)(Runtime&, Value self, const Arguments&);

struct Builtin {
  std::string_view name;
  BuiltinFunction function = nullptr;
};

// Null when there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_text_method(std::string_view name);
const Builtin* find_list_method(std::string_view name);
const Builtin* find_tuple_method(std::string_view name);
const Builtin* find_dict_method(std::string_view name);
const Builtin* find_global(std::string_view name);

// Arguments by position or name, checked against a signature.
class Parameters {
 public:
  Parameters(
      Runtime& runtime,
      std::string_view function,
      const Arguments& arguments,
      std::initializer_list<std::string_view> names,
      size_t n_required = 0);

  bool has(size_t i) const { return is_given_[i]; }
  // Given and not None.
  bool has_value(size_t i) const { return is_given_[i] && !values_[i].is_none(); }
  Value operator[](size_t i) const { return values_[i]; }
  Value value_or(size_t i, Value fallback) const { return is_given_[i] ? values_[i] : fallback; }
  bool flag(size_t i, bool fallback) const;
  int64_t integer(size_t i, int64_t fallback) const;
  // REQUIRES: has(i).
  const Text& text(size_t i) const;
  std::string_view bytes_or(size_t i, std::string_view fallback) const;

 private:
  static constexpr size_t kMost = 6;
  std::string_view name_of(size_t i) const;

  Runtime& runtime_;
  std::string_view function_;
  std::initializer_list<std::string_view> names_;
  std::array<Value, kMost> values_;
  std::array<bool, kMost> is_given_{};
};

}  // namespace nightsweep::jinja
