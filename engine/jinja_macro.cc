// The macros and call blocks of the evaluator.
#include <algorithm>

#include "base/format.h"
#include "engine/jinja_eval.h"

namespace nightsweep::jinja {
namespace {

struct MacroObject : HostObject {
  MacroObject(Evaluator& walker, const MacroDefinition& definition, Scope* scope)
      : evaluator(walker), macro(definition), closure(scope) {}

  std::string_view type_name() const override { return "Macro"; }

  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override {
    if (name == "name") return runtime.heap().text(macro.name);
    if (name == "caller") return Value::boolean(macro.uses_caller);
    if (name == "catch_varargs") return Value::boolean(macro.uses_varargs);
    if (name == "catch_kwargs") return Value::boolean(macro.uses_kwargs);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const auto& parameter : macro.parameters) {
      names.push_back(runtime.heap().text(parameter.name));
    }
    return runtime.heap().tuple(std::move(names));
  }

  Value call(Runtime& /*runtime*/, const Arguments& arguments) override {
    return evaluator.call_macro(macro, closure, arguments);
  }

  Evaluator& evaluator;
  const MacroDefinition& macro;
  Scope* closure;
};

bool is_parameter(const MacroDefinition& macro, std::string_view name) {
  return std::any_of(macro.parameters.begin(), macro.parameters.end(), [&](const auto& parameter) {
    return parameter.name == name;
  });
}

const Value* find_named(const Arguments& arguments, std::string_view name) {
  auto found = std::find_if(
      arguments.named.begin(), arguments.named.end(),
      [&](const auto& argument) { return argument.first == name; });
  return found == arguments.named.end() ? nullptr : &found->second;
}

}  // namespace

Value Evaluator::new_macro(const MacroDefinition& macro, Scope* scope) {
  for (Scope* outer = scope; outer != nullptr && !outer->is_captured; outer = outer->parent) {
    outer->is_captured = true;
  }
  return Value::object(Kind::host, runtime_.heap().make<MacroObject>(*this, macro, scope));
}

void Evaluator::set_named(std::string_view name, Value value, Scope* scope) {
  if (const Symbol* symbol = tree_.symbols.find(std::string(name)))
    set_variable(scope, *symbol, value);
}

// Defaults see all that was given, whatever its place, and the parameters in front of them.
void Evaluator::bind_parameters(
    const MacroDefinition& macro,
    const Arguments& arguments,
    Scope* scope) {
  std::vector<size_t> left;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& parameter = macro.parameters[i];
    const Value* value = find_named(arguments, parameter.name);
    if (i < arguments.positional.size()) value = &arguments.positional[i];
    if (value == nullptr) left.push_back(i);
    set_variable(scope, parameter.symbol, value == nullptr ? missing(parameter.symbol) : *value);
  }
  for (size_t i : left) {
    const auto& parameter = macro.parameters[i];
    Value value =
        parameter.fallback != nullptr
            ? eval(*parameter.fallback, scope)
            : runtime_.heap().undefined(format("parameter '{}' was not provided", parameter.name));
    set_variable(scope, parameter.symbol, value);
  }
}

// What no parameter takes: varargs, kwargs and the caller.
void Evaluator::bind_rest(const MacroDefinition& macro, const Arguments& arguments, Scope* scope) {
  Heap& heap = runtime_.heap();
  size_t n_parameters = macro.parameters.size();
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = n_parameters; i < arguments.positional.size(); ++i) {
      rest.push_back(arguments.positional[i]);
    }
    set_named("varargs", heap.tuple(std::move(rest)), scope);
  } else if (arguments.positional.size() > n_parameters) {
    runtime_.error(
        format("macro '{}' takes not more than {} argument(s)", macro.name, n_parameters));
  }
  if (macro.uses_caller && !is_parameter(macro, "caller")) {
    set_named("caller", heap.undefined("no caller is defined"), scope);
  }
  auto* rest = heap.make<Dict>();
  for (size_t k = 0; k < arguments.named.size(); ++k) {
    const auto& [name, value] = arguments.named[k];
    auto taker = std::find_if(
        macro.parameters.begin(), macro.parameters.end(),
        [&, wanted = name](const auto& parameter) { return parameter.name == wanted; });
    auto place = static_cast<size_t>(taker - macro.parameters.begin());
    if (place < n_parameters && place >= arguments.positional.size()) continue;
    if (name == "caller" && macro.uses_caller) {
      set_named("caller", value, scope);
    } else if (macro.uses_kwargs && place == n_parameters) {
      heap.charge(sizeof(Dict::Entry));
      rest->set(heap.text(name), value);
    } else {
      runtime_.error(format("macro '{}' takes no keyword argument '{}'", macro.name, name));
    }
  }
  if (macro.uses_kwargs) set_named("kwargs", Value::object(Kind::dict, rest), scope);
}

Value Evaluator::call_macro(
    const MacroDefinition& macro,
    Scope* closure,
    const Arguments& arguments) {
  struct Call {
    explicit Call(uint32_t& counter) : n(counter) { ++n; }
    ~Call() { --n; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    uint32_t& n;
  };
  Call counted(n_calls_);
  if (n_calls_ > runtime_.limits().max_depth) runtime_.error("macros call each other too deeply");
  uint32_t line = runtime_.line();
  runtime_.step(macro.parameters.size() * arguments.named.size() / 16);
  Frame frame(*this, macro.locals, closure);
  bind_parameters(macro, arguments, frame.scope());
  bind_rest(macro, arguments, frame.scope());
  MarkedString out;
  run_block(macro.body, frame.scope(), out);
  runtime_.set_line(line);
  return runtime_.heap().text(std::move(out));
}

void Evaluator::run_call_block(const CallBlockStmt& stmt, Scope* scope, MarkedString& out) {
  Value callee = eval(*stmt.call->callee, scope);
  Arguments arguments = eval_arguments(stmt.call->arguments, scope);
  arguments.named.emplace_back("caller", new_macro(stmt.caller, scope));
  write(runtime_.call(callee, arguments), out);
}

}  // namespace nightsweep::jinja
