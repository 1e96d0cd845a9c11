#include "engine/jinja_expr_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/format.h"
#include "engine/jinja_builtins.h"

namespace nightsweep::jinja {
namespace {

// Higher binds tighter. A comparison and a chain of ~ take all their operands at once.
constexpr int kOrPower = 1;
constexpr int kAndPower = 2;
constexpr int kNotPower = 3;
constexpr int kComparePower = 4;
constexpr int kAddPower = 5;
constexpr int kConcatPower = 6;
constexpr int kMultiplyPower = 7;
constexpr int kPowerPower = 8;

struct BinarySymbol {
  std::string_view symbol;
  int power;
  BinaryOperator op;
};
constexpr std::array<BinarySymbol, 7> kBinarySymbols{{
    {"+", kAddPower, BinaryOperator::add},
    {"-", kAddPower, BinaryOperator::subtract},
    {"*", kMultiplyPower, BinaryOperator::multiply},
    {"/", kMultiplyPower, BinaryOperator::divide},
    {"//", kMultiplyPower, BinaryOperator::floor_divide},
    {"%", kMultiplyPower, BinaryOperator::modulo},
    {"**", kPowerPower, BinaryOperator::power},
}};

constexpr std::array<std::pair<std::string_view, CompareOperator>, 6> kCompareSymbols{{
    {"==", CompareOperator::eq},
    {"!=", CompareOperator::ne},
    {"<", CompareOperator::lt},
    {"<=", CompareOperator::le},
    {">", CompareOperator::gt},
    {">=", CompareOperator::ge},
}};

// A left-deep chain of operators is as high as it is long.
constexpr uint32_t kHeightPerDepth = 4;

// Whether Jinja2 computes it when it compiles.
bool is_foldable(const Expr& expr) {
  if (expr.kind == ExprKind::unary) {
    return is_foldable(*static_cast<const UnaryExpr&>(expr).operand);
  }
  if (expr.kind != ExprKind::binary) return expr.kind == ExprKind::constant;
  const auto& binary = static_cast<const BinaryExpr&>(expr);
  return is_foldable(*binary.right) && is_foldable(*binary.left);
}

}  // namespace

void ExprParser::error(const std::string& text) const {
  throw TemplateError(format("line {}: {}", current().line, text));
}

std::string ExprParser::described() const {
  switch (current().kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::data:
      return "text";
    case TokenKind::string:
      return "a string";
    default:
      return format("'{}'", current().text);
  }
}

bool ExprParser::is_symbol(std::string_view symbol) const {
  return current().kind == TokenKind::symbol && current().text == symbol;
}
bool ExprParser::is_name(std::string_view name) const {
  return current().kind == TokenKind::name && current().text == name;
}
bool ExprParser::skip_symbol(std::string_view symbol) {
  if (!is_symbol(symbol)) return false;
  take();
  return true;
}
bool ExprParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}
void ExprParser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) error(format("expected '{}', found {}", symbol, described()));
}
void ExprParser::expect_name(std::string_view name) {
  if (!skip_name(name)) error(format("expected '{}', found {}", name, described()));
}
void ExprParser::expect_kind(TokenKind kind, std::string_view text) {
  if (current().kind != kind) error(format("expected '{}', found {}", text, described()));
  take();
}
std::string ExprParser::expect_any_name() {
  if (current().kind != TokenKind::name) error(format("expected a name, found {}", described()));
  return take().text;
}
bool ExprParser::is_constant_name(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

ExprPtr ExprParser::adopt(Expr& parent, ExprPtr child) const {
  parent.height = std::max(parent.height, child->height + 1);
  if (parent.height > limits_.max_depth * kHeightPerDepth) error("an expression is too long");
  return child;
}

ExprPtr ExprParser::constant(Value value, uint32_t line) {
  auto expr = std::make_unique<ConstantExpr>(line);
  expr->value = value;
  return expr;
}

ExprPtr ExprParser::parse_expression() {
  return parse_conditional();
}

ExprPtr ExprParser::parse_conditional() {
  ExprPtr expr = parse_operators(kOrPower);
  while (is_name("if")) {
    auto conditional = std::make_unique<ConditionalExpr>(take().line);
    conditional->then = adopt(*conditional, std::move(expr));
    conditional->condition = adopt(*conditional, parse_operators(kOrPower));
    if (skip_name("else")) {
      Nesting nesting(*this);
      conditional->otherwise = adopt(*conditional, parse_conditional());
    }
    expr = std::move(conditional);
  }
  return expr;
}

ExprPtr ExprParser::parse_tuple(
    bool with_conditional,
    std::initializer_list<std::string_view> ends) {
  uint32_t line = current().line;
  auto parse_one = [&] {
    return with_conditional ? parse_conditional() : parse_operators(kOrPower);
  };
  ExprPtr first = parse_one();
  if (!is_symbol(",")) return first;
  auto tuple = std::make_unique<TupleExpr>(line);
  tuple->items.push_back(adopt(*tuple, std::move(first)));
  while (skip_symbol(",")) {
    bool is_end = current().kind == TokenKind::variable_end ||
                  current().kind == TokenKind::block_end || is_symbol(")") ||
                  std::any_of(ends.begin(), ends.end(), [&](auto name) { return is_name(name); });
    if (is_end) break;
    tuple->items.push_back(adopt(*tuple, parse_one()));
  }
  return tuple;
}

ExprPtr ExprParser::parse_operators(int min_power) {
  Nesting nesting(*this);
  ExprPtr left;
  if (min_power <= kNotPower && is_name("not")) {
    auto negation = std::make_unique<UnaryExpr>(take().line);
    negation->op = UnaryOperator::logical_not;
    negation->operand = adopt(*negation, parse_operators(kNotPower));
    left = std::move(negation);
    // `not a + b` has taken all that binds tighter; only and, or can follow.
  } else {
    left = parse_unary(true);
  }
  while (true) {
    const Token& token = current();
    if (token.kind == TokenKind::name && (token.text == "or" || token.text == "and")) {
      bool is_and = token.text == "and";
      int power = is_and ? kAndPower : kOrPower;
      if (power < min_power) return left;
      auto expr = std::make_unique<LogicalExpr>(take().line);
      expr->is_and = is_and;
      expr->left = adopt(*expr, std::move(left));
      expr->right = adopt(*expr, parse_operators(power + 1));
      left = std::move(expr);
      continue;
    }
    bool is_negated_in = token.kind == TokenKind::name && token.text == "not" &&
                         tokens_[position_ + 1].kind == TokenKind::name &&
                         tokens_[position_ + 1].text == "in";
    bool is_compare =
        is_negated_in || (token.kind == TokenKind::name && token.text == "in") ||
        (token.kind == TokenKind::symbol &&
         std::any_of(kCompareSymbols.begin(), kCompareSymbols.end(), [&](const auto& entry) {
           return entry.first == token.text;
         }));
    if (is_compare) {
      if (kComparePower < min_power) return left;
      left = parse_compare(std::move(left));
      continue;
    }
    if (token.kind != TokenKind::symbol) return left;
    if (token.text == "~") {
      if (kConcatPower < min_power) return left;
      left = parse_concat(std::move(left));
      continue;
    }
    const auto* binary = std::find_if(
        kBinarySymbols.begin(), kBinarySymbols.end(),
        [&](const BinarySymbol& entry) { return entry.symbol == token.text; });
    if (binary == kBinarySymbols.end() || binary->power < min_power) return left;
    auto expr = std::make_unique<BinaryExpr>(take().line);
    expr->op = binary->op;
    expr->left = adopt(*expr, std::move(left));
    expr->right = adopt(*expr, parse_operators(binary->power + 1));
    expr->binds_sign_last =
        expr->op == BinaryOperator::power && !is_foldable(*expr->right) && is_foldable(*expr->left);
    left = std::move(expr);
  }
}

ExprPtr ExprParser::parse_compare(ExprPtr first) {
  auto expr = std::make_unique<CompareExpr>(current().line);
  expr->first = adopt(*expr, std::move(first));
  while (true) {
    CompareOperator op = CompareOperator::eq;
    if (skip_name("in")) {
      op = CompareOperator::in;
    } else if (
        is_name("not") && tokens_[position_ + 1].kind == TokenKind::name &&
        tokens_[position_ + 1].text == "in") {
      take();
      take();
      op = CompareOperator::not_in;
    } else {
      const auto* found = std::find_if(
          kCompareSymbols.begin(), kCompareSymbols.end(),
          [&](const auto& entry) { return is_symbol(entry.first); });
      if (found == kCompareSymbols.end()) return expr;
      op = found->second;
      take();
    }
    expr->rest.emplace_back(op, adopt(*expr, parse_operators(kComparePower + 1)));
  }
}

ExprPtr ExprParser::parse_concat(ExprPtr first) {
  auto expr = std::make_unique<ConcatExpr>(current().line);
  expr->items.push_back(adopt(*expr, std::move(first)));
  while (skip_symbol("~")) {
    expr->items.push_back(adopt(*expr, parse_operators(kConcatPower + 1)));
  }
  return expr;
}

ExprPtr ExprParser::parse_unary(bool with_filters) {
  ExprPtr expr;
  if (is_symbol("-") || is_symbol("+")) {
    Nesting nesting(*this);
    bool is_minus = is_symbol("-");
    auto unary = std::make_unique<UnaryExpr>(take().line);
    unary->op = is_minus ? UnaryOperator::negate : UnaryOperator::plus;
    unary->operand = adopt(*unary, parse_unary(false));
    expr = std::move(unary);
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr ExprParser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (is_symbol(".") || is_symbol("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (is_symbol("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExprParser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (is_symbol("|")) {
      expr = parse_filters(std::move(expr));
    } else if (is_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (is_symbol("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExprParser::parse_filters(ExprPtr input) {
  while (skip_symbol("|"))
    input = parse_filter(std::move(input));
  return input;
}

ExprPtr ExprParser::parse_filter(ExprPtr input) {
  auto expr = std::make_unique<FilterExpr>(current().line);
  std::string name = expect_any_name();
  expr->filter = find_filter(name);
  if (expr->filter == nullptr) error(format("the filter '{}' is not known", name));
  expr->input = adopt(*expr, std::move(input));
  if (is_symbol("(")) expr->arguments = parse_arguments(*expr);
  return expr;
}

ExprPtr ExprParser::parse_test(ExprPtr input) {
  auto expr = std::make_unique<TestExpr>(take().line);
  bool is_negated = skip_name("not");
  std::string name = expect_any_name();
  expr->test = find_test(name);
  if (expr->test == nullptr) error(format("the test '{}' is not known", name));
  expr->input = adopt(*expr, std::move(input));
  const Token& token = current();
  bool is_operand = token.kind == TokenKind::string || token.kind == TokenKind::integer ||
                    token.kind == TokenKind::real || is_symbol("[") || is_symbol("{") ||
                    (token.kind == TokenKind::name && token.text != "else" && token.text != "or" &&
                     token.text != "and");
  if (is_symbol("(")) {
    expr->arguments = parse_arguments(*expr);
  } else if (is_operand) {
    if (is_name("is")) error("tests cannot be chained with 'is'");
    expr->arguments.positional.push_back(adopt(*expr, parse_postfix(parse_primary())));
  }
  if (!is_negated) return expr;
  auto negation = std::make_unique<UnaryExpr>(expr->line);
  negation->op = UnaryOperator::logical_not;
  negation->operand = adopt(*negation, std::move(expr));
  return negation;
}

}  // namespace nightsweep::jinja
