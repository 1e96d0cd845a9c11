#include "engine/jinja_loop.h"

#include <utility>

namespace nightsweep::jinja {
namespace {

struct LoopCycle : HostObject {
  explicit LoopCycle(LoopObject& owner) : loop(owner) {}
  std::string_view type_name() const override { return "method"; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    if (arguments.positional.empty()) runtime.error("no items for cycling given");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  LoopObject& loop;
};

struct LoopChanged : HostObject {
  explicit LoopChanged(LoopObject& owner) : loop(owner) {}
  std::string_view type_name() const override { return "method"; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    Value now = runtime.heap().tuple(arguments.positional);
    if (loop.last_checked && runtime.equal(*loop.last_checked, now)) return Value::boolean(false);
    loop.last_checked = now;
    return Value::boolean(true);
  }
  LoopObject& loop;
};

}  // namespace

void LoopObject::start(Runtime& runtime, Value iterable) {
  if (iterable.is(Kind::dict)) dict_ = &iterable.dict();
  if (iterable.is(Kind::dict_view)) dict_ = iterable.dict_view().of;
  if (dict_ != nullptr) dict_size_ = dict_->entries().size();
  if (iterable.is(Kind::list)) {
    live_ = &iterable.sequence();
  } else {
    values_ = runtime.items_of(iterable);
    runtime.heap().charge(values_.size() * sizeof(Value));
  }
}

std::optional<Value> LoopObject::pull(Runtime& runtime) {
  if (dict_ != nullptr && dict_->entries().size() != dict_size_) {
    runtime.error("the dictionary changed its size in a loop over it");
  }
  while (!is_exhausted_ && place_ < elements().size()) {
    runtime.step();
    Value value = elements()[place_++];
    if (are_admitted_ || evaluator.admits(loop, value, scope)) return value;
  }
  is_exhausted_ = true;  // for good, even if the list grows
  return std::nullopt;
}

const std::optional<Value>& LoopObject::peek(Runtime& runtime) {
  if (!next_) next_ = pull(runtime);
  return next_;
}

bool LoopObject::advance(Runtime& runtime) {
  std::optional<Value> value = std::exchange(next_, std::nullopt);
  if (!value) value = pull(runtime);
  if (!value) return false;
  previous_ = std::exchange(current, *value);
  if (std::exchange(is_started_, true)) ++index;
  return true;
}

int64_t LoopObject::length(Runtime& runtime) {
  if (length_) return *length_;
  if (loop.condition == nullptr) {
    length_ = static_cast<int64_t>(elements().size());
    return *length_;
  }
  // Only the conditions of all items tell how many there are.
  std::vector<Value> rest;
  while (std::optional<Value> value = pull(runtime))
    rest.push_back(*value);
  runtime.heap().charge(rest.size() * sizeof(Value));
  length_ = static_cast<int64_t>(index + 1 + (next_ ? 1 : 0) + rest.size());
  are_admitted_ = true;
  live_ = nullptr;
  values_ = std::move(rest);
  place_ = 0;
  is_exhausted_ = false;
  return *length_;
}

std::optional<Value> LoopObject::attribute(Runtime& runtime, std::string_view name) {
  auto number = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
  if (name == "index") return number(index + 1);
  if (name == "index0") return number(index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(!peek(runtime));
  if (name == "length") return Value::integer(length(runtime));
  auto n_done = static_cast<int64_t>(index);
  if (name == "revindex") return Value::integer(length(runtime) - n_done);
  if (name == "revindex0") return Value::integer(length(runtime) - n_done - 1);
  if (name == "depth") return number(depth + 1);
  if (name == "depth0") return number(depth);
  if (name == "previtem") {
    return index > 0 ? previous_ : runtime.heap().undefined("there is no previous item");
  }
  if (name == "nextitem") {
    const std::optional<Value>& next = peek(runtime);
    return next ? *next : runtime.heap().undefined("there is no next item");
  }
  if (name == "cycle") return Value::object(Kind::host, runtime.heap().make<LoopCycle>(*this));
  if (name == "changed") return Value::object(Kind::host, runtime.heap().make<LoopChanged>(*this));
  return std::nullopt;
}

Value LoopObject::call(Runtime& runtime, const Arguments& arguments) {
  if (!loop.is_recursive) {
    runtime.error("the loop needs the word 'recursive' to be called");
  }
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    runtime.error("loop() takes one argument");
  }
  return evaluator.call_loop(loop, scope, arguments.positional[0], depth + 1);
}

}  // namespace nightsweep::jinja
