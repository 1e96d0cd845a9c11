#include "engine/jinja_loop.h"

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

int64_t LoopObject::first_length() {
  if (!length) length = static_cast<int64_t>(elements().size());
  return *length;
}

std::optional<Value> LoopObject::attribute(Runtime& runtime, std::string_view name) {
  auto number = [](size_t n) { return Value::integer(static_cast<int64_t>(n)); };
  if (name == "index") return number(index + 1);
  if (name == "index0") return number(index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 >= elements().size());
  if (name == "length") return Value::integer(first_length());
  auto done = static_cast<int64_t>(index);
  if (name == "revindex") return Value::integer(first_length() - done);
  if (name == "revindex0") return Value::integer(first_length() - done - 1);
  if (name == "depth") return number(depth + 1);
  if (name == "depth0") return number(depth);
  if (name == "previtem") {
    return index > 0 ? previous : runtime.heap().undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < elements().size() ? elements()[index + 1]
                                         : runtime.heap().undefined("there is no next item");
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
