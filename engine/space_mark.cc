#include "engine/space_mark.h"

#include <algorithm>

namespace nightsweep {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, begin)) {
    out += text.substr(begin, at - begin);
    out += to;
    begin = at + from.size();
  }
  out += text.substr(begin);
  return out;
}

size_t first_word_end(std::string_view text) {
  size_t begin = 0;
  while (text.substr(begin).starts_with(kSpaceMark))
    begin += kSpaceMark.size();
  return std::min(text.find(kSpaceMark, begin), text.size());
}

}  // namespace nightsweep
