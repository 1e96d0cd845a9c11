#include "engine/jinja_operators.h"

#include <array>
#include <cmath>

#include "base/format.h"
#include "engine/jinja_format.h"

namespace nightsweep::jinja {
namespace {

[[noreturn]] void overflow(Runtime& runtime) {
  runtime.error("an integer leaves the range of 64 bits");
}

[[noreturn]] void refuse(Runtime& runtime, std::string_view symbol, Value a, Value b) {
  runtime.error(format(
      "unsupported operand type(s) for {}: '{}' and '{}'", symbol, runtime.type_name(a),
      runtime.type_name(b)));
}

constexpr std::array<std::string_view, 7> kSymbols{"+", "-", "*", "/", "//", "%", "**"};

int64_t integer_power(Runtime& runtime, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow(runtime);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow(runtime);
  }
  return result;
}

double real_modulo(double x, double y) {
  double modulo = std::fmod(x, y);
  if (modulo == 0) return std::copysign(0.0, y);
  return (y < 0) != (modulo < 0) ? modulo + y : modulo;
}

double real_floor_divide(double x, double y) {
  double modulo = std::fmod(x, y);
  double quotient = (x - modulo) / y;
  if (modulo != 0 && (y < 0) != (modulo < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, x / y);
  double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value integer_arithmetic(Runtime& runtime, BinaryOperator op, int64_t x, int64_t y) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case BinaryOperator::add:
      overflows = __builtin_add_overflow(x, y, &result);
      break;
    case BinaryOperator::subtract:
      overflows = __builtin_sub_overflow(x, y, &result);
      break;
    case BinaryOperator::multiply:
      overflows = __builtin_mul_overflow(x, y, &result);
      break;
    case BinaryOperator::divide:
      if (y == 0) runtime.error("division by zero");
      return Value::real(
          static_cast<double>(static_cast<long double>(x) / static_cast<long double>(y)));
    case BinaryOperator::floor_divide:
    case BinaryOperator::modulo: {
      if (y == 0) runtime.error("integer division or modulo by zero");
      if (y == -1) {  // the smallest integer over -1 traps
        if (op == BinaryOperator::modulo) return Value::integer(0);
        overflows = __builtin_sub_overflow(int64_t{0}, x, &result);
        break;
      }
      bool is_inexact = x % y != 0 && ((x < 0) != (y < 0));
      result = op == BinaryOperator::modulo ? x % y + (is_inexact ? y : 0)
                                            : x / y - (is_inexact ? 1 : 0);
      break;
    }
    case BinaryOperator::power:
      if (y >= 0) return Value::integer(integer_power(runtime, x, y));
      if (x == 0) runtime.error("0.0 cannot be raised to a negative power");
      return Value::real(std::pow(static_cast<double>(x), static_cast<double>(y)));
  }
  if (overflows) overflow(runtime);
  return Value::integer(result);
}

Value real_arithmetic(Runtime& runtime, BinaryOperator op, double x, double y) {
  switch (op) {
    case BinaryOperator::add:
      return Value::real(x + y);
    case BinaryOperator::subtract:
      return Value::real(x - y);
    case BinaryOperator::multiply:
      return Value::real(x * y);
    case BinaryOperator::divide:
      if (y == 0) runtime.error("float division by zero");
      return Value::real(x / y);
    case BinaryOperator::floor_divide:
      if (y == 0) runtime.error("float floor division by zero");
      return Value::real(real_floor_divide(x, y));
    case BinaryOperator::modulo:
      if (y == 0) runtime.error("float modulo");
      return Value::real(real_modulo(x, y));
    case BinaryOperator::power: {
      if (x == 0 && y < 0) runtime.error("0.0 cannot be raised to a negative power");
      double result = std::pow(x, y);
      if (std::isnan(result) && !std::isnan(x) && !std::isnan(y)) {
        runtime.error("a negative number has no such power");
      }
      if (std::isinf(result) && !std::isinf(x) && !std::isinf(y)) {
        runtime.error("numerical result out of range");
      }
      return Value::real(result);
    }
  }
  return {};
}

Value repeat(Runtime& runtime, Value what, int64_t times) {
  auto n = static_cast<size_t>(std::max<int64_t>(times, 0));
  size_t unit = what.is_text() ? what.text().marked.size() : what.sequence().items.size();
  if (unit == 0) n = 0;
  size_t limit = runtime.limits().max_memory_bytes / (what.is_text() ? 1 : sizeof(Value));
  if (n > 0 && unit > limit / n) {
    runtime.error(format(
        "a repetition makes more than {} bytes of values", runtime.limits().max_memory_bytes));
  }
  runtime.step(n + unit * n / 64);
  if (what.is_text()) {
    MarkedString result;
    for (size_t i = 0; i < n; ++i)
      result.append(what.text().marked);
    return runtime.heap().text(std::move(result), what.text().is_markup);
  }
  std::vector<Value> items;
  items.reserve(unit * n);
  const auto& source = what.sequence().items;
  for (size_t i = 0; i < n; ++i)
    items.insert(items.end(), source.begin(), source.end());
  return what.is(Kind::list) ? runtime.heap().list(std::move(items))
                             : runtime.heap().tuple(std::move(items));
}

Value add_texts(Runtime& runtime, const Text& a, const Text& b) {
  runtime.step_bytes(a.marked.size() + b.marked.size());
  bool is_markup = a.is_markup || b.is_markup;
  MarkedString result = is_markup && !a.is_markup ? escape_html(a.marked) : a.marked;
  result.append(is_markup && !b.is_markup ? escape_html(b.marked) : b.marked);
  return runtime.heap().text(std::move(result), is_markup);
}

}  // namespace

MarkedString escape_html(const MarkedString& text) {
  MarkedString result;
  MarkCursor marks(text);
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text.bytes()[i];
    std::string_view piece = c == '&'    ? "&amp;"
                             : c == '<'  ? "&lt;"
                             : c == '>'  ? "&gt;"
                             : c == '\'' ? "&#39;"
                             : c == '"'  ? "&#34;"
                                         : std::string_view(&c, 1);
    result.append(piece, marks.is_input(i));
  }
  return result;
}

Value apply_binary(Runtime& runtime, BinaryOperator op, Value a, Value b) {
  if (op == BinaryOperator::modulo && a.is_text()) {
    return runtime.heap().text(percent_format(runtime, a.text(), b), a.text().is_markup);
  }
  runtime.refuse_undefined(a);
  runtime.refuse_undefined(b);
  if (a.is_integral() && b.is_integral()) {
    return integer_arithmetic(runtime, op, a.as_integer(), b.as_integer());
  }
  if (a.is_number() && b.is_number()) return real_arithmetic(runtime, op, a.as_real(), b.as_real());
  if (op == BinaryOperator::add) {
    if (a.is_text() && b.is_text()) return add_texts(runtime, a.text(), b.text());
    if (a.is_sequence() && a.kind() == b.kind()) {
      std::vector<Value> items = a.sequence().items;
      const auto& more = b.sequence().items;
      items.insert(items.end(), more.begin(), more.end());
      runtime.step(items.size());
      return a.is(Kind::list) ? runtime.heap().list(std::move(items))
                              : runtime.heap().tuple(std::move(items));
    }
    if (a.is_text() || a.is_sequence()) {
      std::string_view type = runtime.type_name(a);
      runtime.error(
          format("can only concatenate {} (not \"{}\") to {}", type, runtime.type_name(b), type));
    }
  }
  if (op == BinaryOperator::multiply) {
    auto is_repeatable = [](Value value) { return value.is_text() || value.is_sequence(); };
    if (is_repeatable(a) && b.is_integral()) return repeat(runtime, a, b.as_integer());
    if (is_repeatable(b) && a.is_integral()) return repeat(runtime, b, a.as_integer());
  }
  refuse(runtime, kSymbols[static_cast<size_t>(op)], a, b);
}

Value apply_unary(Runtime& runtime, UnaryOperator op, Value a) {
  if (op == UnaryOperator::logical_not) return Value::boolean(!runtime.truthy(a));
  runtime.refuse_undefined(a);
  if (!a.is_number()) {
    runtime.error(format(
        "bad operand type for unary {}: '{}'", op == UnaryOperator::negate ? '-' : '+',
        runtime.type_name(a)));
  }
  if (a.is(Kind::real)) return op == UnaryOperator::negate ? Value::real(-a.as_real()) : a;
  if (op == UnaryOperator::plus) return Value::integer(a.as_integer());
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, a.as_integer(), &result)) overflow(runtime);
  return Value::integer(result);
}

}  // namespace nightsweep::jinja
