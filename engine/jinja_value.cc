#include "engine/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/format.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

constexpr size_t kScannedEntries = 12;  // up to here a scan is faster than an index
constexpr size_t kNowhere = static_cast<size_t>(-1);

}  // namespace

Text::Text(MarkedString value, bool is_markup_text)
    : marked(std::move(value)), n_points(count_points(marked.bytes())), is_markup(is_markup_text) {}

int64_t Range::size() const {
  // Differences of int64 may not fit; unsigned arithmetic is exact here.
  auto distance = [](int64_t low, int64_t high) {
    return static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  };
  uint64_t n = 0;
  if (step > 0 && start < stop) {
    n = (distance(start, stop) - 1) / static_cast<uint64_t>(step) + 1;
  } else if (step < 0 && start > stop) {
    n = (distance(stop, start) - 1) / (~static_cast<uint64_t>(step) + 1) + 1;
  }
  return static_cast<int64_t>(std::min<uint64_t>(n, INT64_MAX));
}

void Heap::charge(size_t bytes) {
  if (bytes > max_bytes_ - used_bytes_) {
    throw TemplateError(format("the template builds more than {} bytes of values", max_bytes_));
  }
  used_bytes_ += bytes;
}

Value Heap::text(MarkedString text, bool is_markup) {
  charge(text.size());
  return Value::object(Kind::text, make<Text>(std::move(text), is_markup));
}

Value Heap::sequence(Kind kind, std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  auto* sequence = make<Sequence>();
  sequence->items = std::move(items);
  return Value::object(kind, sequence);
}

Value Heap::generator(std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  auto* generator = make<Generator>();
  generator->items = std::move(items);
  return Value::object(Kind::generator, generator);
}

Value Heap::undefined(std::string_view reason) {
  return Value::object(Kind::undefined, make<Text>(MarkedString(std::string(reason))));
}

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer() ? 1 : 0;
  }
  auto widened = [](const Value& value) {
    // 64 bits of precision hold every integer and every double.
    return value.is_integral() ? static_cast<long double>(value.as_integer())
                               : static_cast<long double>(value.as_real());
  };
  long double x = widened(a);
  long double y = widened(b);
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

bool is_hashable(const Value& key) {
  switch (key.kind()) {
    case Kind::list:
    case Kind::dict:
    case Kind::dict_view:
      return false;
    case Kind::tuple: {
      const auto& items = key.sequence().items;
      return std::all_of(items.begin(), items.end(), is_hashable);
    }
    default:
      return true;
  }
}

bool equal_keys(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) return a.text().bytes() == b.text().bytes();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is(Kind::tuple)) {
    const auto& x = a.sequence().items;
    const auto& y = b.sequence().items;
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), equal_keys);
  }
  return a.as_object() == b.as_object();
}

size_t hash_key(const Value& key) {
  switch (key.kind()) {
    case Kind::text:
      return std::hash<std::string>()(key.text().bytes());
    case Kind::boolean:
    case Kind::integer:
      return std::hash<int64_t>()(key.as_integer());
    case Kind::real: {
      double value = key.as_real();
      // 2 and 2.0 are one key.
      if (std::floor(value) == value && std::abs(value) < 9.2e18) {
        return std::hash<int64_t>()(static_cast<int64_t>(value));
      }
      return std::hash<double>()(value);
    }
    case Kind::tuple: {
      size_t hash = 0x9E3779B9;
      for (const Value& item : key.sequence().items)
        hash = hash * 31 + hash_key(item);
      return hash;
    }
    case Kind::undefined:
    case Kind::none:
      return static_cast<size_t>(key.kind());
    default:
      return std::hash<const void*>()(key.as_object());
  }
}

size_t Dict::position_of(const Value& key) const {
  if (positions_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (equal_keys(entries_[i].first, key)) return i;
    }
    return kNowhere;
  }
  auto [first, last] = positions_.equal_range(hash_key(key));
  for (; first != last; ++first) {
    if (equal_keys(entries_[first->second].first, key)) return first->second;
  }
  return kNowhere;
}

const Value* Dict::find(const Value& key) const {
  size_t position = position_of(key);
  return position == kNowhere ? nullptr : &entries_[position].second;
}

const Value* Dict::find(std::string_view key) const {
  if (positions_.empty()) {
    for (const auto& [name, value] : entries_) {
      if (name.is_text() && name.text().bytes() == key) return &value;
    }
    return nullptr;
  }
  auto [first, last] = positions_.equal_range(std::hash<std::string_view>()(key));
  for (; first != last; ++first) {
    const auto& [name, value] = entries_[first->second];
    if (name.is_text() && name.text().bytes() == key) return &value;
  }
  return nullptr;
}

void Dict::index_all() {
  positions_.clear();
  if (entries_.size() <= kScannedEntries) return;
  for (size_t i = 0; i < entries_.size(); ++i)
    positions_.emplace(hash_key(entries_[i].first), i);
}

void Dict::set(const Value& key, const Value& value) {
  size_t position = position_of(key);
  if (position != kNowhere) {
    entries_[position].second = value;
    return;
  }
  entries_.emplace_back(key, value);
  if (!positions_.empty()) {
    positions_.emplace(hash_key(key), entries_.size() - 1);
  } else {
    index_all();
  }
}

bool Dict::erase(const Value& key) {
  size_t position = position_of(key);
  if (position == kNowhere) return false;
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(position));
  index_all();
  return true;
}

void Dict::clear() {
  entries_.clear();
  positions_.clear();
}

}  // namespace nightsweep::jinja
