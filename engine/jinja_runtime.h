// What Python does with values, within the limits of one rendering. Every failure is a
// TemplateError that gives the line of the template.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/jinja_builtins.h"
#include "engine/jinja_value.h"

namespace nightsweep::jinja {

class Runtime {
 public:
  Runtime(const TemplateLimits& limits, int64_t now_unix_s)
      : limits_(limits), now_unix_s_(now_unix_s), heap_(limits.max_memory_bytes) {}

  Heap& heap() { return heap_; }
  const TemplateLimits& limits() const { return limits_; }
  int64_t now_unix_s() const { return now_unix_s_; }

  // One level of calls, or of values and nodes within each other.
  class Nesting {
   public:
    explicit Nesting(Runtime& runtime, uint32_t weight = 1) : runtime_(runtime), weight_(weight) {
      runtime_.nesting_ += weight_;
      if (runtime_.nesting_ > runtime_.limits_.max_depth * kNodesPerDepth) {
        runtime_.nesting_ -= weight_;
        runtime_.error("the template recurses too deeply");
      }
    }
    ~Nesting() { runtime_.nesting_ -= weight_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    static constexpr uint32_t kNodesPerDepth = 10;

   private:
    Runtime& runtime_;
    uint32_t weight_;
  };

  void step(uint64_t n = 1) {
    n_steps_ += n;
    if (n_steps_ > limits_.max_steps) error("the template takes too many steps");
  }
  // Going over that many bytes.
  void step_bytes(size_t n) { step(n / 64); }
  void set_line(uint32_t line) { line_ = line; }
  uint32_t line() const { return line_; }
  [[noreturn]] void error(const std::string& text) const;
  // An operation on an undefined value: says why it is undefined.
  [[noreturn]] void fail_undefined(Value value) const;
  void refuse_undefined(Value value) const {
    if (value.is_undefined()) fail_undefined(value);
  }

  // Strings that come out of it are input.
  Value from_json(const Json& json, bool is_input);

  bool truthy(Value value) const;
  std::string_view type_name(Value value) const;
  // str() and repr().
  MarkedString str(Value value);
  MarkedString repr(Value value);
  bool equal(Value a, Value b);
  // -1, 0, 1, and 2 for NaN. `symbol` is for the message when there is no order.
  int order(Value a, Value b, std::string_view symbol = "<");
  bool contains(Value container, Value item);
  // Consumes a generator.
  std::vector<Value> items_of(Value value);
  bool is_iterable(Value value) const;
  int64_t length(Value value);
  bool has_length(Value value) const;

  const Builtin* find_method(Value self, std::string_view name) const;
  // Methods and attributes, no items of dicts.
  std::optional<Value> own_attribute(Value object, std::string_view name);
  // x.name and x[index]: undefined where there is none.
  Value attribute(Value object, std::string_view name);
  Value item(Value object, Value index);
  Value slice(Value object, Value start, Value stop, Value step);
  Value call(Value callee, const Arguments& arguments);
  Value call_builtin(const Builtin& builtin, Value self, const Arguments& arguments);
  Value key_checked(Value key) const;

 private:
  std::optional<Value> own_item(Value object, Value index);
  void print(Value value, bool is_repr, MarkedString& out);
  void print_all(const std::vector<Value>& items, MarkedString& out);
  void print_dict(const Dict& dict, MarkedString& out);
  bool equal_dicts(const Dict& a, const Dict& b);

  const TemplateLimits& limits_;
  int64_t now_unix_s_;
  Heap heap_;
  uint64_t n_steps_ = 0;
  uint32_t nesting_ = 0;
  uint32_t line_ = 0;
  std::vector<const Object*> printing_;  // containers being printed, to stop at cycles
};

// repr(float).
std::string print_real(double value);

}  // namespace nightsweep::jinja
