// str.isalpha() and its like.
#include <array>

#include "engine/jinja_builtin_tables.h"
#include "engine/jinja_runtime.h"
#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

template <bool (*kHolds)(char32_t)>
bool all_points(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (!kHolds(next_point(text, at))) return false;
  }
  return true;
}

// All points of a text that is not empty.
template <bool (*kHolds)(char32_t)>
Value method_all(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "str method", arguments, {});
  const std::string& text = self.text().bytes();
  return Value::boolean(!text.empty() && all_points<kHolds>(text));
}

bool is_alphanumeric(char32_t point) {
  return is_alpha(point) || is_decimal(point) || is_digit(point) || is_numeric(point);
}
bool is_identifier_point(char32_t point) {
  return point == '_' || is_alpha(point) || is_decimal(point);
}

Value method_isascii(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "isascii", arguments, {});
  return Value::boolean(self.text().is_ascii());
}

Value method_isprintable(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "isprintable", arguments, {});
  return Value::boolean(all_points<is_printable>(self.text().bytes()));
}

Value method_isidentifier(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "isidentifier", arguments, {});
  const std::string& text = self.text().bytes();
  size_t at = 0;
  bool holds = !text.empty() && !is_decimal(next_point(text, at));
  return Value::boolean(holds && all_points<is_identifier_point>(text));
}

template <bool (*kWanted)(char32_t), bool (*kOther)(char32_t)>
Value method_is_case(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "str method", arguments, {});
  const std::string& text = self.text().bytes();
  bool has_cased = false;
  for (size_t at = 0; at < text.size();) {
    char32_t point = next_point(text, at);
    if (kOther(point) || is_title(point)) return Value::boolean(false);
    has_cased |= kWanted(point);
  }
  return Value::boolean(has_cased);
}

Value method_istitle(Runtime& runtime, Value self, const Arguments& arguments) {
  Parameters(runtime, "istitle", arguments, {});
  const std::string& text = self.text().bytes();
  bool has_cased = false;
  bool after_cased = false;
  for (size_t at = 0; at < text.size();) {
    char32_t point = next_point(text, at);
    bool begins = is_upper(point) || is_title(point);
    bool goes_on = is_lower(point);
    if ((begins && after_cased) || (goes_on && !after_cased)) return Value::boolean(false);
    after_cased = begins || goes_on;
    has_cased |= after_cased;
  }
  return Value::boolean(has_cased);
}

constexpr std::array kClassMethods{
    Builtin{"isalnum", method_all<is_alphanumeric>},
    Builtin{"isalpha", method_all<is_alpha>},
    Builtin{"isascii", method_isascii},
    Builtin{"isdecimal", method_all<is_decimal>},
    Builtin{"isdigit", method_all<is_digit>},
    Builtin{"isidentifier", method_isidentifier},
    Builtin{"islower", method_is_case<is_lower, is_upper>},
    Builtin{"isnumeric", method_all<is_numeric>},
    Builtin{"isprintable", method_isprintable},
    Builtin{"isspace", method_all<is_space>},
    Builtin{"istitle", method_istitle},
    Builtin{"isupper", method_is_case<is_upper, is_lower>},
};

}  // namespace

std::span<const Builtin> text_class_methods() {
  return kClassMethods;
}

}  // namespace nightsweep::jinja
