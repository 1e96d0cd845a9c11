// The operands of expressions: literals, names, brackets, subscripts and calls.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "engine/jinja_expr_parser.h"

namespace nightsweep::jinja {

CallArguments ExprParser::parse_arguments(Expr& owner) {
  CallArguments arguments;
  expect_symbol("(");
  bool needs_comma = false;
  while (!is_symbol(")")) {
    if (needs_comma) {
      expect_symbol(",");
      if (is_symbol(")")) break;
    }
    needs_comma = true;
    bool is_keyword = current().kind == TokenKind::name &&
                      tokens_[position_ + 1].kind == TokenKind::symbol &&
                      tokens_[position_ + 1].text == "=";
    if (arguments.star_star != nullptr) error("no argument may follow **");
    if (skip_symbol("**")) {
      arguments.star_star = adopt(owner, parse_expression());
    } else if (is_symbol("*")) {
      if (arguments.star != nullptr) error("only one * argument is allowed");
      take();
      arguments.star = adopt(owner, parse_expression());
    } else if (is_keyword) {
      std::string name = take().text;
      take();
      bool is_repeated = std::any_of(
          arguments.named.begin(), arguments.named.end(),
          [&](const auto& argument) { return argument.first == name; });
      if (is_repeated) error(format("the argument '{}' is given twice", name));
      arguments.named.emplace_back(name, adopt(owner, parse_expression()));
    } else {
      if (!arguments.named.empty() || arguments.star != nullptr) {
        error("an argument without a name may not follow one with a name");
      }
      arguments.positional.push_back(adopt(owner, parse_expression()));
    }
  }
  expect_symbol(")");
  return arguments;
}

ExprPtr ExprParser::parse_call(ExprPtr callee) {
  auto expr = std::make_unique<CallExpr>(current().line);
  expr->callee = adopt(*expr, std::move(callee));
  expr->arguments = parse_arguments(*expr);
  return expr;
}

ExprPtr ExprParser::parse_subscript(ExprPtr object) {
  uint32_t line = current().line;
  if (skip_symbol(".")) {
    if (current().kind == TokenKind::name) {
      auto expr = std::make_unique<AttributeExpr>(line);
      expr->object = adopt(*expr, std::move(object));
      expr->name = take().text;
      return expr;
    }
    if (current().kind != TokenKind::integer) {
      error(format("expected a name or a number after '.', found {}", described()));
    }
    auto expr = std::make_unique<ItemExpr>(line);
    expr->object = adopt(*expr, std::move(object));
    expr->index = constant(Value::integer(take().integer), line);
    return expr;
  }
  expect_symbol("[");
  auto is_part_end = [&] { return is_symbol(":") || is_symbol("]"); };
  ExprPtr start;
  if (!is_symbol(":")) {
    start = parse_expression();
    if (is_symbol(",")) {
      auto tuple = std::make_unique<TupleExpr>(line);
      tuple->items.push_back(adopt(*tuple, std::move(start)));
      while (skip_symbol(",")) {
        if (is_symbol("]")) break;
        tuple->items.push_back(adopt(*tuple, parse_expression()));
      }
      start = std::move(tuple);
    }
    if (skip_symbol("]")) {
      auto expr = std::make_unique<ItemExpr>(line);
      expr->object = adopt(*expr, std::move(object));
      expr->index = adopt(*expr, std::move(start));
      return expr;
    }
  }
  auto expr = std::make_unique<SliceExpr>(line);
  expr->object = adopt(*expr, std::move(object));
  if (start != nullptr) expr->start = adopt(*expr, std::move(start));
  expect_symbol(":");
  if (!is_part_end()) expr->stop = adopt(*expr, parse_expression());
  if (skip_symbol(":") && !is_part_end()) expr->step = adopt(*expr, parse_expression());
  expect_symbol("]");
  return expr;
}

ExprPtr ExprParser::parse_primary() {
  const Token& token = current();
  uint32_t line = token.line;
  switch (token.kind) {
    case TokenKind::name:
      return parse_name();
    case TokenKind::string: {
      std::string text = take().text;
      while (current().kind == TokenKind::string)
        text += take().text;
      return constant(tree_.constants.text(text), line);
    }
    case TokenKind::integer:
      return constant(Value::integer(take().integer), line);
    case TokenKind::real:
      return constant(Value::real(take().real), line);
    default:
      break;
  }
  if (is_symbol("(")) return parse_bracketed();
  if (is_symbol("[")) return parse_list();
  if (is_symbol("{")) return parse_dict();
  error(format("expected an expression, found {}", described()));
}

ExprPtr ExprParser::parse_name() {
  uint32_t line = current().line;
  std::string name = take().text;
  if (name == "true" || name == "True") return constant(Value::boolean(true), line);
  if (name == "false" || name == "False") return constant(Value::boolean(false), line);
  if (name == "none" || name == "None") return constant(Value::none(), line);
  for (MacroDefinition* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
  }
  auto expr = std::make_unique<NameExpr>(line);
  expr->symbol = tree_.symbols.intern(name);
  return expr;
}

ExprPtr ExprParser::parse_bracketed() {
  uint32_t line = current().line;
  expect_symbol("(");
  if (skip_symbol(")")) return std::make_unique<TupleExpr>(line);
  ExprPtr expr = parse_tuple(true, {});
  expect_symbol(")");
  return expr;
}

ExprPtr ExprParser::parse_list() {
  auto expr = std::make_unique<ListExpr>(current().line);
  expect_symbol("[");
  while (!is_symbol("]")) {
    if (!expr->items.empty()) {
      expect_symbol(",");
      if (is_symbol("]")) break;
    }
    expr->items.push_back(adopt(*expr, parse_expression()));
  }
  expect_symbol("]");
  return expr;
}

ExprPtr ExprParser::parse_dict() {
  auto expr = std::make_unique<DictExpr>(current().line);
  expect_symbol("{");
  while (!is_symbol("}")) {
    if (!expr->items.empty()) {
      expect_symbol(",");
      if (is_symbol("}")) break;
    }
    ExprPtr key = adopt(*expr, parse_expression());
    expect_symbol(":");
    ExprPtr value = adopt(*expr, parse_expression());
    expr->items.emplace_back(std::move(key), std::move(value));
  }
  expect_symbol("}");
  return expr;
}

}  // namespace nightsweep::jinja
