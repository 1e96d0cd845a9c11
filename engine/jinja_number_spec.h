// Numbers printed by a format specification: [[fill]align][sign][#][0][width][,][.precision][type].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nightsweep::jinja {

constexpr int kMaxWidth = 100'000;

struct NumberSpec {
  std::string fill = " ";  // one character
  char align = '\0';       // < > ^ or = (between sign and digits); 0: the default of the type
  char sign = '-';
  bool is_alternate = false;
  int width = 0;
  char group = '\0';   // , or _
  int precision = -1;  // none
  char type = '\0';
};

// Gives what is wrong with the text, or nothing.
std::string parse_number_spec(std::string_view text, NumberSpec& spec);
std::string print_integer(int64_t value, const NumberSpec& spec);
std::string print_real(double value, const NumberSpec& spec);
// '%.*f'.
std::string print_fixed(double value, int precision);

}  // namespace nightsweep::jinja
