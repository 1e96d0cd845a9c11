// The values of a template, and the heap that owns them.
//
// A rendering makes its values on one heap and drops them all at its end. So a Value is two words
// to copy, and a list that holds itself is no leak.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/chat_template.h"
#include "engine/marked_string.h"

namespace nightsweep::jinja {

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  range,
  dict_view,
  generator,
  name_space,
  host,  // macros, functions, bound methods, loop, cycler, joiner
};

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct Text;
struct Sequence;
struct Dict;
struct Range;
struct DictView;
struct Generator;
struct HostObject;

class Value {
 public:
  Value() : bits_{.object = nullptr} {}  // undefined
  static Value none() { return Value(Kind::none, {.object = nullptr}); }
  static Value boolean(bool value) { return Value(Kind::boolean, {.boolean = value}); }
  static Value integer(int64_t value) { return Value(Kind::integer, {.integer = value}); }
  static Value real(double value) { return Value(Kind::real, {.real = value}); }
  static Value object(Kind kind, Object* object) { return Value(kind, {.object = object}); }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_text() const { return kind_ == Kind::text; }
  // In Python a bool is an int.
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }

  // REQUIRES: the value is of that kind.
  bool as_boolean() const { return bits_.boolean; }
  int64_t as_integer() const { return is(Kind::boolean) ? int64_t{bits_.boolean} : bits_.integer; }
  double as_real() const { return is(Kind::real) ? bits_.real : static_cast<double>(as_integer()); }
  Object* as_object() const { return bits_.object; }
  const Text& text() const;
  Sequence& sequence() const;
  Dict& dict() const;  // of a name_space too
  const Range& range() const;
  const DictView& dict_view() const;
  Generator& generator() const;
  HostObject& host() const;
  // Why it is undefined; null for a missing value without a story.
  const Text* reason() const;

 private:
  union Bits {
    bool boolean;
    int64_t integer;
    double real;
    Object* object;
  };
  Value(Kind kind, Bits bits) : kind_(kind), bits_(bits) {}

  Kind kind_ = Kind::undefined;
  Bits bits_;
};

struct Text : Object {
  explicit Text(MarkedString value, bool is_markup_text = false);
  const std::string& bytes() const { return marked.bytes(); }
  bool is_ascii() const { return n_points == marked.size(); }

  MarkedString marked;
  size_t n_points;
  bool is_markup;  // the filters `safe` and `escape` made it
};

struct Sequence : Object {  // list and tuple
  std::vector<Value> items;
  bool is_group = false;  // a tuple of the filter groupby: has .grouper and .list
};

// Keys keep the order in which they came. Keys are hashable (the runtime checks that).
struct Dict : Object {
  using Entry = std::pair<Value, Value>;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, const Value& value);
  bool erase(const Value& key);
  void clear();
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  size_t position_of(const Value& key) const;
  void index_all();

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> positions_;  // hash to entry; empty while few
};

struct Range : Object {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t size() const;
  // Wraps around where the end of a range lies beyond 64 bits.
  int64_t at(int64_t index) const {
    return static_cast<int64_t>(
        static_cast<uint64_t>(start) + static_cast<uint64_t>(index) * static_cast<uint64_t>(step));
  }
};

enum class ViewKind : uint8_t { keys, values, items };
struct DictView : Object {
  Dict* of = nullptr;
  ViewKind shows = ViewKind::keys;
};

// What map, select and their like give: true as a condition, without a length, used up by the
// first loop over it.
struct Generator : Object {
  std::vector<Value> items;
  size_t next = 0;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

class Runtime;
struct HostObject : Object {
  virtual std::string_view type_name() const = 0;
  virtual std::optional<Value> attribute(Runtime&, std::string_view /*name*/) {
    return std::nullopt;
  }
  virtual bool is_callable() const { return true; }
  virtual Value call(Runtime&, const Arguments&) = 0;
  // What a loop over it gives; null when it is not iterable.
  virtual const std::vector<Value>* items() const { return nullptr; }
};

// Owns what a rendering makes. Counts bytes and throws TemplateError beyond its limit.
class Heap {
 public:
  explicit Heap(size_t max_bytes) : max_bytes_(max_bytes) {}

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    charge(sizeof(T) + 2 * sizeof(void*));
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* raw = object.get();
    objects_.push_back(std::move(object));
    return raw;
  }
  void charge(size_t bytes);

  Value text(MarkedString text, bool is_markup = false);
  Value text(std::string_view text) { return this->text(MarkedString(std::string(text))); }
  Value list(std::vector<Value> items) { return sequence(Kind::list, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::tuple, std::move(items)); }
  Value generator(std::vector<Value> items);
  Value undefined(std::string_view reason);

 private:
  Value sequence(Kind kind, std::vector<Value> items);

  size_t max_bytes_;
  size_t used_bytes_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

// Python's == and hash() of keys: None, numbers, strings, tuples of these.
bool is_hashable(const Value& key);
bool equal_keys(const Value& a, const Value& b);
size_t hash_key(const Value& key);
// Exact, also where a double cannot hold the integer: -1, 0, 1; 2 when one is NaN.
int compare_numbers(const Value& a, const Value& b);

inline const Text& Value::text() const {
  return *static_cast<const Text*>(bits_.object);
}
inline const Text* Value::reason() const {
  return static_cast<const Text*>(bits_.object);
}
inline Sequence& Value::sequence() const {
  return *static_cast<Sequence*>(bits_.object);
}
inline Dict& Value::dict() const {
  return *static_cast<Dict*>(bits_.object);
}
inline const Range& Value::range() const {
  return *static_cast<const Range*>(bits_.object);
}
inline const DictView& Value::dict_view() const {
  return *static_cast<const DictView*>(bits_.object);
}
inline Generator& Value::generator() const {
  return *static_cast<Generator*>(bits_.object);
}
inline HostObject& Value::host() const {
  return *static_cast<HostObject*>(bits_.object);
}

}  // namespace nightsweep::jinja
