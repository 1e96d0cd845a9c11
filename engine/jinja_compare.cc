// Equality, order and membership of values.
#include <algorithm>

#include "base/format.h"
#include "engine/jinja_runtime.h"

namespace nightsweep::jinja {

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

}  // namespace nightsweep::jinja
