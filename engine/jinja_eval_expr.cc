// The expressions of the evaluator.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "engine/jinja_eval.h"
#include "engine/jinja_operators.h"

namespace nightsweep::jinja {
namespace {

constexpr size_t kVariablesPerStep = 16;

struct GlobalFunction : HostObject {
  explicit GlobalFunction(const Builtin& builtin) : global(builtin) {}
  std::string_view type_name() const override { return "function"; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    return runtime.call_builtin(global, Value(), arguments);
  }
  const Builtin& global;
};

}  // namespace

Value Evaluator::missing(Symbol symbol) {
  if (!missing_[symbol]) {
    missing_[symbol] =
        runtime_.heap().undefined(format("'{}' is undefined", tree_.symbols.name(symbol)));
  }
  return *missing_[symbol];
}

void Evaluator::set_variable(Scope* scope, Symbol symbol, Value value) {
  runtime_.step(scope->variables.size() / kVariablesPerStep);
  scope->set(symbol, value);
}

Value Evaluator::lookup(Symbol symbol, const Scope* scope) {
  size_t n_passed = 0;
  for (; scope != nullptr; scope = scope->parent) {
    n_passed += scope->variables.size();
    if (const Value* value = scope->find(symbol)) {
      runtime_.step(n_passed / kVariablesPerStep);
      return *value;
    }
  }
  runtime_.step(n_passed / kVariablesPerStep);
  if (root_[symbol]) return *root_[symbol];
  if (globals_[symbol] != nullptr) {
    return Value::object(Kind::host, runtime_.heap().make<GlobalFunction>(*globals_[symbol]));
  }
  return missing(symbol);
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
      Value right = eval(*binary.right, scope);
      if (binary.binds_sign_last && left.is_number() && std::signbit(left.as_real())) {
        left = apply_unary(runtime_, UnaryOperator::negate, left);
        return apply_unary(
            runtime_, UnaryOperator::negate, apply_binary(runtime_, binary.op, left, right));
      }
      return apply_binary(runtime_, binary.op, left, right);
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
