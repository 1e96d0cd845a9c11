#include "engine/jinja_sort.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {

std::vector<Value> sorted_by_keys(
    Runtime& runtime,
    const std::vector<Value>& items,
    const std::vector<Value>& keys,
    bool is_reversed) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Python keeps the first order of equal items in both directions.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return is_reversed ? runtime.order(keys[b], keys[a]) == -1
                       : runtime.order(keys[a], keys[b]) == -1;
  });
  std::vector<Value> result;
  result.reserve(items.size());
  for (size_t i : order)
    result.push_back(items[i]);
  return result;
}

Value without_case(Runtime& runtime, Value value) {
  if (!value.is_text()) return value;
  return runtime.heap().text(change_case(value.text().marked, CaseChange::lower));
}

Value attribute_path(Runtime& runtime, Value object, Value path) {
  if (!path.is_text()) return runtime.item(object, path);
  std::string_view rest = path.text().bytes();
  while (true) {
    size_t dot = rest.find('.');
    std::string_view part = rest.substr(0, dot);
    int64_t number = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    bool is_number = error == std::errc{} && end == part.data() + part.size() && part[0] != '-';
    object = runtime.item(object, is_number ? Value::integer(number) : runtime.heap().text(part));
    if (dot == std::string_view::npos) return object;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace nightsweep::jinja
