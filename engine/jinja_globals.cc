// The global functions of templates.
#include <algorithm>
#include <array>
#include <ctime>

#include "base/format.h"
#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_runtime.h"

namespace nightsweep::jinja {
namespace {

// As Jinja's sandbox has it.
constexpr int64_t kMaxRange = 100'000;

Value global_range(Runtime& runtime, Value /*self*/, const Arguments& arguments) {
  Parameters parameters(runtime, "range", arguments, {"start", "stop", "step"}, 1);
  auto* range = runtime.heap().make<Range>();
  range->start = parameters.has(1) ? parameters.integer(0, 0) : 0;
  range->stop = parameters.has(1) ? parameters.integer(1, 0) : parameters.integer(0, 0);
  range->step = parameters.integer(2, 1);
  if (range->step == 0) runtime.error("range() arg 3 must not be zero");
  if (range->size() > kMaxRange) {
    runtime.error(format("range() is too big: more than {} items", kMaxRange));
  }
  return Value::object(Kind::range, range);
}

Value new_dict(Runtime& runtime, const Arguments& arguments) {
  Value dict = Value::object(Kind::dict, runtime.heap().make<Dict>());
  find_dict_method("update")->function(runtime, dict, arguments);
  return dict;
}

Value global_dict(Runtime& runtime, Value /*self*/, const Arguments& arguments) {
  return new_dict(runtime, arguments);
}

Value global_namespace(Runtime& runtime, Value /*self*/, const Arguments& arguments) {
  return Value::object(Kind::name_space, new_dict(runtime, arguments).as_object());
}

struct Cycler : HostObject {
  std::string_view type_name() const override { return "Cycler"; }
  bool is_callable() const override { return false; }
  Value call(Runtime& runtime, const Arguments&) override {
    runtime.error("'Cycler' object is not callable");
  }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;

  std::vector<Value> values;
  size_t position = 0;
};

struct CyclerMethod : HostObject {
  CyclerMethod(Cycler& owner, bool moves_on) : cycler(owner), is_next(moves_on) {}
  std::string_view type_name() const override { return "method"; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    Parameters(runtime, "cycler method", arguments, {});
    Value current = cycler.values[cycler.position];
    cycler.position = is_next ? (cycler.position + 1) % cycler.values.size() : 0;
    return is_next ? current : Value::none();
  }
  Cycler& cycler;
  bool is_next;
};

std::optional<Value> Cycler::attribute(Runtime& runtime, std::string_view name) {
  if (name == "current") return values[position];
  if (name != "next" && name != "reset") return std::nullopt;
  return Value::object(Kind::host, runtime.heap().make<CyclerMethod>(*this, name == "next"));
}

Value global_cycler(Runtime& runtime, Value /*self*/, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    runtime.error("cycler() needs at least one item, and no names");
  }
  auto* cycler = runtime.heap().make<Cycler>();
  cycler->values = arguments.positional;
  return Value::object(Kind::host, cycler);
}

struct Joiner : HostObject {
  explicit Joiner(Value text) : separator(text) {}
  std::string_view type_name() const override { return "Joiner"; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    Parameters(runtime, "joiner", arguments, {});
    if (is_used) return separator;
    is_used = true;
    return runtime.heap().text("");
  }
  Value separator;
  bool is_used = false;
};

Value global_joiner(Runtime& runtime, Value /*self*/, const Arguments& arguments) {
  Parameters parameters(runtime, "joiner", arguments, {"sep"});
  Value separator = parameters.has(0) ? parameters[0] : runtime.heap().text(", ");
  return Value::object(Kind::host, runtime.heap().make<Joiner>(separator));
}

Value global_raise_exception(Runtime& runtime, Value /*self*/, const Arguments& arguments) {
  Parameters parameters(runtime, "raise_exception", arguments, {"message"}, 1);
  // The template's own words, for the user as they are.
  throw TemplateError(runtime.str(parameters[0]).bytes());
}

Value global_strftime_now(Runtime& runtime, Value /*self*/, const Arguments& arguments) {
  Parameters parameters(runtime, "strftime_now", arguments, {"format"}, 1);
  std::string pattern;
  const std::string& given = parameters.text(0).bytes();
  if (given.size() > 4096) runtime.error("strftime_now(): the format is too long");
  // The clock has no zone and no fraction, as Python's naive datetime.
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != '%' || i + 1 == given.size()) {
      pattern.push_back(given[i]);
      continue;
    }
    char letter = given[++i];
    if (letter == 'f') {
      pattern += "000000";
    } else if (letter != 'z' && letter != 'Z') {
      pattern += {'%', letter};
    }
  }
  std::time_t seconds = runtime.now_unix_s();
  std::tm fields{};
  if (gmtime_r(&seconds, &fields) == nullptr) runtime.error("strftime_now(): the clock is off");
  // One more character tells an empty result from a buffer that is too small.
  pattern.push_back('.');
  std::string out(pattern.size() * 64 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), pattern.c_str(), &fields));
  if (out.empty()) runtime.error("strftime_now(): the format gives too long a text");
  out.pop_back();
  return runtime.heap().text(out);
}

constexpr std::array kGlobals{
    Builtin{"cycler", global_cycler},
    Builtin{"dict", global_dict},
    Builtin{"joiner", global_joiner},
    Builtin{"namespace", global_namespace},
    Builtin{"raise_exception", global_raise_exception},
    Builtin{"range", global_range},
    Builtin{"strftime_now", global_strftime_now},
};

}  // namespace

std::span<const Builtin> globals() {
  return kGlobals;
}

}  // namespace nightsweep::jinja
