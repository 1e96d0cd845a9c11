// The tests behind `is`.
#include <array>

#include "base/format.h"
#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_operators.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

Value no_arguments(Runtime& runtime, const Arguments& arguments, bool holds) {
  Parameters(runtime, "test", arguments, {});
  return Value::boolean(holds);
}

template <Kind kKind>
Value test_kind(Runtime& runtime, Value self, const Arguments& arguments) {
  return no_arguments(runtime, arguments, self.is(kKind));
}

Value test_defined(Runtime& runtime, Value self, const Arguments& arguments) {
  return no_arguments(runtime, arguments, !self.is_undefined());
}
Value test_number(Runtime& runtime, Value self, const Arguments& arguments) {
  return no_arguments(runtime, arguments, self.is_number());
}
Value test_iterable(Runtime& runtime, Value self, const Arguments& arguments) {
  return no_arguments(runtime, arguments, runtime.is_iterable(self));
}
Value test_sequence(Runtime& runtime, Value self, const Arguments& arguments) {
  bool holds = self.is_undefined() || self.is_text() || self.is_sequence() || self.is(Kind::dict) ||
               self.is(Kind::range);
  return no_arguments(runtime, arguments, holds);
}
Value test_callable(Runtime& runtime, Value self, const Arguments& arguments) {
  // Python's Undefined can be called, to fail then.
  bool is_callable = self.is_undefined() || (self.is(Kind::host) && self.host().is_callable());
  return no_arguments(runtime, arguments, is_callable);
}
template <bool kWanted>
Value test_boolean_value(Runtime& runtime, Value self, const Arguments& arguments) {
  return no_arguments(runtime, arguments, self.is(Kind::boolean) && self.as_boolean() == kWanted);
}
Value test_escaped(Runtime& runtime, Value self, const Arguments& arguments) {
  return no_arguments(runtime, arguments, self.is_text() && self.text().is_markup);
}

template <bool kUpper>
Value test_case(Runtime& runtime, Value self, const Arguments& arguments) {
  Arguments none;
  Value text = runtime.heap().text(runtime.str(self));
  Value holds = find_text_method(kUpper ? "isupper" : "islower")->function(runtime, text, none);
  return no_arguments(runtime, arguments, holds.as_boolean());
}

template <int64_t kRemainder>
Value test_parity(Runtime& runtime, Value self, const Arguments& arguments) {
  Value rest = apply_binary(runtime, BinaryOperator::modulo, self, Value::integer(2));
  return no_arguments(runtime, arguments, runtime.equal(rest, Value::integer(kRemainder)));
}

Value test_divisibleby(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "divisibleby", arguments, {"num"}, 1);
  Value rest = apply_binary(runtime, BinaryOperator::modulo, self, parameters[0]);
  return Value::boolean(runtime.equal(rest, Value::integer(0)));
}

Value test_eq(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "eq", arguments, {"other"}, 1);
  return Value::boolean(runtime.equal(self, parameters[0]));
}
Value test_ne(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "ne", arguments, {"other"}, 1);
  return Value::boolean(!runtime.equal(self, parameters[0]));
}
template <int kWanted, bool kOrEqual>
Value test_order(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "comparison", arguments, {"other"}, 1);
  static constexpr std::string_view kSymbol =
      kWanted < 0 ? (kOrEqual ? "<=" : "<") : (kOrEqual ? ">=" : ">");
  int order = runtime.order(self, parameters[0], kSymbol);
  return Value::boolean(order == kWanted || (kOrEqual && order == 0));
}
Value test_in(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "in", arguments, {"seq"}, 1);
  return Value::boolean(runtime.contains(parameters[0], self));
}
Value test_sameas(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters parameters(runtime, "sameas", arguments, {"other"}, 1);
  Value other = parameters[0];
  if (self.kind() != other.kind()) return Value::boolean(false);
  bool by_value = self.is_number() || self.is_text() || self.is_none() || self.is_undefined();
  return Value::boolean(
      by_value ? runtime.equal(self, other) : self.as_object() == other.as_object());
}
Value test_filter(Runtime& runtime, Value self, const Arguments& arguments) {
  return no_arguments(
      runtime, arguments, self.is_text() && find_filter(self.text().bytes()) != nullptr);
}
Value test_test(Runtime& runtime, Value self, const Arguments& arguments) {
  return no_arguments(
      runtime, arguments, self.is_text() && find_test(self.text().bytes()) != nullptr);
}

constexpr std::array kTests{
    Builtin{"boolean", test_kind<Kind::boolean>},
    Builtin{"callable", test_callable},
    Builtin{"defined", test_defined},
    Builtin{"divisibleby", test_divisibleby},
    Builtin{"escaped", test_escaped},
    Builtin{"even", test_parity<0>},
    Builtin{"false", test_boolean_value<false>},
    Builtin{"filter", test_filter},
    Builtin{"float", test_kind<Kind::real>},
    Builtin{"in", test_in},
    Builtin{"integer", test_kind<Kind::integer>},
    Builtin{"iterable", test_iterable},
    Builtin{"lower", test_case<false>},
    Builtin{"mapping", test_kind<Kind::dict>},
    Builtin{"none", test_kind<Kind::none>},
    Builtin{"number", test_number},
    Builtin{"odd", test_parity<1>},
    Builtin{"sameas", test_sameas},
    Builtin{"sequence", test_sequence},
    Builtin{"string", test_kind<Kind::text>},
    Builtin{"test", test_test},
    Builtin{"true", test_boolean_value<true>},
    Builtin{"undefined", test_kind<Kind::undefined>},
    Builtin{"upper", test_case<true>},
    Builtin{"==", test_eq},
    Builtin{"eq", test_eq},
    Builtin{"equalto", test_eq},
    Builtin{"!=", test_ne},
    Builtin{"ne", test_ne},
    Builtin{">", test_order<1, false>},
    Builtin{"gt", test_order<1, false>},
    Builtin{"greaterthan", test_order<1, false>},
    Builtin{">=", test_order<1, true>},
    Builtin{"ge", test_order<1, true>},
    Builtin{"<", test_order<-1, false>},
    Builtin{"lt", test_order<-1, false>},
    Builtin{"lessthan", test_order<-1, false>},
    Builtin{"<=", test_order<-1, true>},
    Builtin{"le", test_order<-1, true>},
};

}  // namespace

std::span<const Builtin> tests() {
  return kTests;
}

}  // namespace nightsweep::jinja
