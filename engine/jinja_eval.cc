#include "engine/jinja_eval.h"

#include <algorithm>

#include "base/format.h"
#include "engine/jinja_loop.h"
#include "engine/jinja_operators.h"

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

struct GlobalFunction : HostObject {
  explicit GlobalFunction(const Builtin& builtin) : global(builtin) {}
  std::string_view type_name() const override { return "function"; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    return runtime.call_builtin(global, Value(), arguments);
  }
  const Builtin& global;
};

template <typename T>
const T& as(const Expr& expr) {
  return static_cast<const T&>(expr);
}
template <typename T>
const T& as(const Stmt& stmt) {
  return static_cast<const T&>(stmt);
}

}  // namespace

void Scope::set(Symbol symbol, Value value) {
  for (auto& [name, old] : variables) {
    if (name == symbol) {
      old = value;
      return;
    }
  }
  variables.emplace_back(symbol, value);
}

// A scope that goes back to the pool unless a macro holds it.
class Evaluator::Frame {
 public:
  Frame(Evaluator& evaluator, Scope* parent) : evaluator_(evaluator) {
    if (evaluator_.free_scopes_.empty()) {
      evaluator_.runtime_.heap().charge(sizeof(Scope));
      scope_ = &evaluator_.scopes_.emplace_back();
    } else {
      scope_ = evaluator_.free_scopes_.back();
      evaluator_.free_scopes_.pop_back();
      scope_->variables.clear();
    }
    scope_->parent = parent;
  }
  ~Frame() {
    if (!scope_->is_captured) evaluator_.free_scopes_.push_back(scope_);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  Scope* scope() const { return scope_; }

 private:
  Evaluator& evaluator_;
  Scope* scope_;
};

MarkedString Evaluator::run() {
  MarkedString out;
  run_block(tree_.body, nullptr, out);
  return out;
}

Evaluator::Flow Evaluator::run_block(const Block& block, Scope* scope, MarkedString& out) {
  for (const StmtPtr& stmt : block) {
    Flow flow = run_statement(*stmt, scope, out);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_inner(const Block& block, Scope* scope, MarkedString& out) {
  Frame frame(*this, scope);
  return run_block(block, frame.scope(), out);
}

Evaluator::Flow Evaluator::run_statement(const Stmt& stmt, Scope* scope, MarkedString& out) {
  Runtime::Nesting nesting(runtime_);
  runtime_.set_line(stmt.line);
  runtime_.step();
  switch (stmt.kind) {
    case StmtKind::data:
      out.append(as<DataStmt>(stmt).text, false);
      check_output(out);
      return Flow::normal;
    case StmtKind::output:
      write(eval(*as<OutputStmt>(stmt).value, scope), out);
      return Flow::normal;
    case StmtKind::if_else:
      return run_if(as<IfStmt>(stmt), scope, out);
    case StmtKind::for_loop: {
      const auto& loop = as<ForStmt>(stmt);
      return run_for(loop, scope, eval(*loop.iterable, scope), 0, out);
    }
    case StmtKind::set: {
      const auto& set = as<SetStmt>(stmt);
      assign(set.target, eval(*set.value, scope), scope);
      return Flow::normal;
    }
    case StmtKind::set_block:
      run_set_block(as<SetBlockStmt>(stmt), scope);
      return Flow::normal;
    case StmtKind::macro: {
      const auto& macro = as<MacroStmt>(stmt);
      Target target;
      target.symbol = macro.symbol;
      assign(target, new_macro(macro.macro, scope), scope);
      return Flow::normal;
    }
    case StmtKind::call_block:
      run_call_block(as<CallBlockStmt>(stmt), scope, out);
      return Flow::normal;
    case StmtKind::filter_block: {
      const auto& block = as<FilterBlockStmt>(stmt);
      write(capture(block.body, scope, *block.value), out);
      return Flow::normal;
    }
    case StmtKind::with:
      run_with(as<WithStmt>(stmt), scope, out);
      return Flow::normal;
    case StmtKind::scope:
      return run_inner(as<ScopeStmt>(stmt).body, scope, out);
    case StmtKind::loop_break:
      return Flow::loop_break;
    case StmtKind::loop_continue:
      return Flow::loop_continue;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_if(const IfStmt& stmt, Scope* scope, MarkedString& out) {
  for (const auto& [condition, body] : stmt.branches) {
    if (runtime_.truthy(eval(*condition, scope))) return run_block(body, scope, out);
  }
  return run_block(stmt.otherwise, scope, out);
}

std::vector<Value> Evaluator::filtered_items(const ForStmt& stmt, Scope* scope, Value iterable) {
  std::vector<Value> items = runtime_.items_of(iterable);
  if (stmt.condition == nullptr) return items;
  std::vector<Value> kept;
  for (Value item : items) {
    Frame frame(*this, scope);
    assign(stmt.target, item, frame.scope());
    if (runtime_.truthy(eval(*stmt.condition, frame.scope()))) kept.push_back(item);
  }
  return kept;
}

Evaluator::Flow Evaluator::run_for(
    const ForStmt& stmt,
    Scope* scope,
    Value iterable,
    size_t depth,
    MarkedString& out) {
  static constexpr std::string_view kLoopName = "loop";
  auto* loop = runtime_.heap().make<LoopObject>(*this, stmt, scope, depth);
  loop->values = filtered_items(stmt, scope, iterable);
  runtime_.heap().charge(loop->values.size() * sizeof(Value));
  if (loop->values.empty()) return run_inner(stmt.otherwise, scope, out);
  const Symbol* loop_symbol = tree_.symbols.find(std::string(kLoopName));
  for (size_t i = 0; i < loop->values.size(); ++i) {
    loop->index = i;
    Frame frame(*this, scope);
    if (loop_symbol != nullptr) {
      frame.scope()->set(*loop_symbol, Value::object(Kind::host, loop));
    }
    assign(stmt.target, loop->values[i], frame.scope());
    if (run_block(stmt.body, frame.scope(), out) == Flow::loop_break) break;
  }
  return Flow::normal;
}

Value Evaluator::call_loop(const ForStmt& loop, Scope* scope, Value iterable, size_t depth) {
  if (depth > runtime_.limits().max_depth) runtime_.error("a loop calls itself too deeply");
  uint32_t line = runtime_.line();
  MarkedString out;
  run_for(loop, scope, iterable, depth, out);
  runtime_.set_line(line);
  return runtime_.heap().text(std::move(out));
}

Value Evaluator::capture(const Block& block, Scope* scope, const Expr& filters) {
  MarkedString out;
  run_inner(block, scope, out);
  captured_ = runtime_.heap().text(std::move(out));
  return eval(filters, scope);
}

void Evaluator::run_set_block(const SetBlockStmt& stmt, Scope* scope) {
  assign(stmt.target, capture(stmt.body, scope, *stmt.value), scope);
}

void Evaluator::run_call_block(const CallBlockStmt& stmt, Scope* scope, MarkedString& out) {
  Value callee = eval(*stmt.call->callee, scope);
  Arguments arguments = eval_arguments(stmt.call->arguments, scope);
  arguments.named.emplace_back("caller", new_macro(stmt.caller, scope));
  write(runtime_.call(callee, arguments), out);
}

void Evaluator::run_with(const WithStmt& stmt, Scope* scope, MarkedString& out) {
  Frame frame(*this, scope);
  for (const auto& [target, value] : stmt.values) {
    assign(target, eval(*value, scope), frame.scope());
  }
  run_block(stmt.body, frame.scope(), out);
}

void Evaluator::check_output(const MarkedString& out) const {
  if (out.size() > runtime_.limits().max_output_bytes) {
    runtime_.error(
        format("the template writes more than {} bytes", runtime_.limits().max_output_bytes));
  }
}

void Evaluator::write(Value value, MarkedString& out) {
  if (value.is_text()) {
    out.append(value.text().marked);
  } else {
    out.append(runtime_.str(value));
  }
  check_output(out);
}

void Evaluator::assign(const Target& target, Value value, Scope* scope) {
  switch (target.form) {
    case Target::Form::name:
      if (scope == nullptr) {
        root_[target.symbol] = value;
      } else {
        scope->set(target.symbol, value);
      }
      return;
    case Target::Form::attribute: {
      Value object = lookup(target.symbol, scope);
      if (!object.is(Kind::name_space)) {
        runtime_.error(format(
            "cannot assign the attribute '{}' of '{}': it is no namespace", target.attribute,
            tree_.symbols.name(target.symbol)));
      }
      runtime_.heap().charge(sizeof(Dict::Entry));
      object.dict().set(runtime_.heap().text(target.attribute), value);
      return;
    }
    case Target::Form::tuple: {
      std::vector<Value> items = runtime_.items_of(value);
      if (items.size() != target.items.size()) {
        runtime_.error(
            format("{} values to unpack into {} names", items.size(), target.items.size()));
      }
      for (size_t i = 0; i < items.size(); ++i)
        assign(target.items[i], items[i], scope);
      return;
    }
  }
}

Value Evaluator::new_macro(const MacroDefinition& macro, Scope* scope) {
  for (Scope* outer = scope; outer != nullptr && !outer->is_captured; outer = outer->parent) {
    outer->is_captured = true;
  }
  return Value::object(Kind::host, runtime_.heap().make<MacroObject>(*this, macro, scope));
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
  Heap& heap = runtime_.heap();
  size_t n_parameters = macro.parameters.size();
  Frame frame(*this, closure);
  Scope* scope = frame.scope();
  auto set_named = [&](const std::string& name, Value value) {
    if (const Symbol* symbol = tree_.symbols.find(name)) scope->set(*symbol, value);
  };

  std::vector<bool> is_named_used(arguments.named.size());
  for (size_t i = 0; i < n_parameters; ++i) {
    const auto& parameter = macro.parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      for (size_t k = 0; k < arguments.named.size(); ++k) {
        if (arguments.named[k].first != parameter.name) continue;
        value = arguments.named[k].second;
        is_named_used[k] = true;
      }
    }
    if (!value) {
      value = parameter.fallback != nullptr
                  ? eval(*parameter.fallback, scope)
                  : heap.undefined(format("parameter '{}' was not provided", parameter.name));
    }
    scope->set(parameter.symbol, *value);
  }

  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = n_parameters; i < arguments.positional.size(); ++i) {
      rest.push_back(arguments.positional[i]);
    }
    set_named("varargs", heap.tuple(std::move(rest)));
  } else if (arguments.positional.size() > n_parameters) {
    runtime_.error(
        format("macro '{}' takes not more than {} argument(s)", macro.name, n_parameters));
  }
  auto is_parameter = [&](std::string_view name) {
    return std::any_of(
        macro.parameters.begin(), macro.parameters.end(),
        [&](const auto& parameter) { return parameter.name == name; });
  };
  auto* rest = heap.make<Dict>();
  if (macro.uses_caller && !is_parameter("caller")) {
    set_named("caller", heap.undefined("no caller is defined"));
  }
  for (size_t k = 0; k < arguments.named.size(); ++k) {
    if (is_named_used[k]) continue;
    const auto& [name, value] = arguments.named[k];
    if (name == "caller" && macro.uses_caller) {
      set_named("caller", value);
    } else if (macro.uses_kwargs && !is_parameter(name)) {
      heap.charge(sizeof(Dict::Entry));
      rest->set(heap.text(name), value);
    } else {
      runtime_.error(format("macro '{}' takes no keyword argument '{}'", macro.name, name));
    }
  }
  if (macro.uses_kwargs) set_named("kwargs", Value::object(Kind::dict, rest));

  MarkedString out;
  run_block(macro.body, scope, out);
  runtime_.set_line(line);
  return heap.text(std::move(out));
}

Value Evaluator::lookup(Symbol symbol, Scope* scope) {
  for (; scope != nullptr; scope = scope->parent) {
    for (const auto& [name, value] : scope->variables) {
      if (name == symbol) return value;
    }
  }
  if (root_[symbol]) return *root_[symbol];
  if (globals_[symbol] != nullptr) {
    return Value::object(Kind::host, runtime_.heap().make<GlobalFunction>(*globals_[symbol]));
  }
  return runtime_.heap().undefined(format("'{}' is undefined", tree_.symbols.name(symbol)));
}

Value Evaluator::eval(const Expr& expr, Scope* scope) {
  Runtime::Nesting nesting(runtime_);
  runtime_.step();
  switch (expr.kind) {
    case ExprKind::constant:
      return as<ConstantExpr>(expr).value;
    case ExprKind::name:
      return lookup(as<NameExpr>(expr).symbol, scope);
    case ExprKind::list:
      return runtime_.heap().list(eval_all(as<ListExpr>(expr).items, scope));
    case ExprKind::tuple:
      return runtime_.heap().tuple(eval_all(as<TupleExpr>(expr).items, scope));
    case ExprKind::dict:
      return eval_dict(as<DictExpr>(expr), scope);
    case ExprKind::unary: {
      const auto& unary = as<UnaryExpr>(expr);
      return apply_unary(runtime_, unary.op, eval(*unary.operand, scope));
    }
    case ExprKind::binary: {
      const auto& binary = as<BinaryExpr>(expr);
      Value left = eval(*binary.left, scope);
      return apply_binary(runtime_, binary.op, left, eval(*binary.right, scope));
    }
    case ExprKind::concat:
      return eval_concat(as<ConcatExpr>(expr), scope);
    case ExprKind::logical:
      return eval_logical(as<LogicalExpr>(expr), scope);
    case ExprKind::compare:
      return eval_compare(as<CompareExpr>(expr), scope);
    case ExprKind::conditional:
      return eval_conditional(as<ConditionalExpr>(expr), scope);
    case ExprKind::attribute: {
      const auto& attribute = as<AttributeExpr>(expr);
      return runtime_.attribute(eval(*attribute.object, scope), attribute.name);
    }
    case ExprKind::item: {
      const auto& item = as<ItemExpr>(expr);
      Value object = eval(*item.object, scope);
      return runtime_.item(object, eval(*item.index, scope));
    }
    case ExprKind::slice:
      return eval_slice(as<SliceExpr>(expr), scope);
    case ExprKind::call:
      return eval_call(as<CallExpr>(expr), scope);
    case ExprKind::filter: {
      const auto& filter = as<FilterExpr>(expr);
      Value input = eval(*filter.input, scope);
      return runtime_.call_builtin(*filter.filter, input, eval_arguments(filter.arguments, scope));
    }
    case ExprKind::test: {
      const auto& test = as<TestExpr>(expr);
      Value input = eval(*test.input, scope);
      return runtime_.call_builtin(*test.test, input, eval_arguments(test.arguments, scope));
    }
    case ExprKind::captured:
      return captured_;
  }
  return {};
}

std::vector<Value> Evaluator::eval_all(const std::vector<ExprPtr>& items, Scope* scope) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExprPtr& item : items)
    values.push_back(eval(*item, scope));
  return values;
}

Value Evaluator::eval_dict(const DictExpr& expr, Scope* scope) {
  auto* dict = runtime_.heap().make<Dict>();
  for (const auto& [key_expr, value_expr] : expr.items) {
    runtime_.heap().charge(sizeof(Dict::Entry));
    Value key = runtime_.key_checked(eval(*key_expr, scope));
    dict->set(key, eval(*value_expr, scope));
  }
  return Value::object(Kind::dict, dict);
}

Value Evaluator::eval_concat(const ConcatExpr& expr, Scope* scope) {
  MarkedString text;
  for (const ExprPtr& item : expr.items)
    write(eval(*item, scope), text);
  runtime_.step_bytes(text.size());
  return runtime_.heap().text(std::move(text));
}

Value Evaluator::eval_logical(const LogicalExpr& expr, Scope* scope) {
  Value left = eval(*expr.left, scope);
  return runtime_.truthy(left) == expr.is_and ? eval(*expr.right, scope) : left;
}

bool Evaluator::holds(CompareOperator op, Value left, Value right) {
  int order = 0;
  switch (op) {
    case CompareOperator::eq:
      return runtime_.equal(left, right);
    case CompareOperator::ne:
      return !runtime_.equal(left, right);
    case CompareOperator::lt:
      return runtime_.order(left, right, "<") == -1;
    case CompareOperator::gt:
      return runtime_.order(left, right, ">") == 1;
    case CompareOperator::le:
      order = runtime_.order(left, right, "<=");
      return order == -1 || order == 0;
    case CompareOperator::ge:
      order = runtime_.order(left, right, ">=");
      return order == 1 || order == 0;
    case CompareOperator::in:
      return runtime_.contains(right, left);
    case CompareOperator::not_in:
      return !runtime_.contains(right, left);
  }
  return false;
}

Value Evaluator::eval_compare(const CompareExpr& expr, Scope* scope) {
  Value left = eval(*expr.first, scope);
  for (const auto& [op, operand] : expr.rest) {
    Value right = eval(*operand, scope);
    if (!holds(op, left, right)) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Evaluator::eval_conditional(const ConditionalExpr& expr, Scope* scope) {
  if (runtime_.truthy(eval(*expr.condition, scope))) return eval(*expr.then, scope);
  if (expr.otherwise != nullptr) return eval(*expr.otherwise, scope);
  return runtime_.heap().undefined(
      format("the inline if-expression on line {} evaluated to false and has no else", expr.line));
}

Value Evaluator::eval_slice(const SliceExpr& expr, Scope* scope) {
  Value object = eval(*expr.object, scope);
  auto part = [&](const ExprPtr& bound) {
    return bound == nullptr ? Value::none() : eval(*bound, scope);
  };
  Value start = part(expr.start);
  Value stop = part(expr.stop);
  return runtime_.slice(object, start, stop, part(expr.step));
}

Arguments Evaluator::eval_arguments(const CallArguments& arguments, Scope* scope) {
  Arguments result;
  result.positional = eval_all(arguments.positional, scope);
  for (const auto& [name, value] : arguments.named) {
    result.named.emplace_back(name, eval(*value, scope));
  }
  if (arguments.star != nullptr) {
    std::vector<Value> more = runtime_.items_of(eval(*arguments.star, scope));
    result.positional.insert(result.positional.end(), more.begin(), more.end());
  }
  if (arguments.star_star != nullptr) {
    Value more = eval(*arguments.star_star, scope);
    if (!more.is(Kind::dict)) runtime_.error("the argument after ** must be a dict");
    for (const auto& [key, value] : more.dict().entries()) {
      if (!key.is_text()) runtime_.error("keywords must be strings");
      bool is_repeated = std::any_of(
          result.named.begin(), result.named.end(),
          [&, name = std::string_view(key.text().bytes())](const auto& argument) {
            return argument.first == name;
          });
      if (is_repeated) {
        runtime_.error(format("the argument '{}' is given twice", key.text().bytes()));
      }
      result.named.emplace_back(key.text().bytes(), value);
    }
    runtime_.step(result.named.size() * result.named.size() / 16);
  }
  return result;
}

Value Evaluator::eval_call(const CallExpr& expr, Scope* scope) {
  if (expr.callee->kind == ExprKind::attribute) {
    const auto& attribute = as<AttributeExpr>(*expr.callee);
    Value object = eval(*attribute.object, scope);
    if (const Builtin* method = runtime_.find_method(object, attribute.name)) {
      return runtime_.call_builtin(*method, object, eval_arguments(expr.arguments, scope));
    }
    Value callee = runtime_.attribute(object, attribute.name);
    return runtime_.call(callee, eval_arguments(expr.arguments, scope));
  }
  Value callee = eval(*expr.callee, scope);
  return runtime_.call(callee, eval_arguments(expr.arguments, scope));
}

}  // namespace nightsweep::jinja
