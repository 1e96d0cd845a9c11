#include "engine/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace nightsweep::jinja {
namespace {

utf8proc_category_t category(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

// The unconditional mappings to several characters of Unicode's SpecialCasing.txt that
// occur in living scripts; utf8proc offers single characters only.
struct SpecialCase {
  char32_t point;
  std::string_view upper;
  std::string_view title;
};
constexpr std::array<SpecialCase, 22> kSpecialCases{{
    {U'\u00DF', "SS", "Ss"},
    {U'\u0149', "\u02BCN", "\u02BCN"},
    {U'\u01F0', "J\u030C", "J\u030C"},
    {U'\u0390', "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {U'\u03B0', "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {U'\u0587', "\u0535\u0552", "\u0535\u0582"},
    {U'\u1E96', "H\u0331", "H\u0331"},
    {U'\u1E97', "T\u0308", "T\u0308"},
    {U'\u1E98', "W\u030A", "W\u030A"},
    {U'\u1E99', "Y\u030A", "Y\u030A"},
    {U'\u1E9A', "A\u02BE", "A\u02BE"},
    {U'\uFB00', "FF", "Ff"},
    {U'\uFB01', "FI", "Fi"},
    {U'\uFB02', "FL", "Fl"},
    {U'\uFB03', "FFI", "Ffi"},
    {U'\uFB04', "FFL", "Ffl"},
    {U'\uFB05', "ST", "St"},
    {U'\uFB06', "ST", "St"},
    {U'\u1FB6', "\u0391\u0342", "\u0391\u0342"},
    {U'\u1FC6', "\u0397\u0342", "\u0397\u0342"},
    {U'\u1FD6', "\u0399\u0342", "\u0399\u0342"},
    {U'\u1FF6', "\u03A9\u0342", "\u03A9\u0342"},
}};

const SpecialCase* find_special(char32_t point) {
  if (point < 0x80) return nullptr;
  for (const SpecialCase& special : kSpecialCases) {
    if (special.point == point) return &special;
  }
  return nullptr;
}

void append_upper(std::string& out, char32_t point) {
  if (point < 0x80) {
    out.push_back(static_cast<char>(point >= 'a' && point <= 'z' ? point - 32 : point));
  } else if (const SpecialCase* special = find_special(point)) {
    out.append(special->upper);
  } else {
    append_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(point))));
  }
}

void append_title(std::string& out, char32_t point) {
  if (const SpecialCase* special = find_special(point)) {
    out.append(special->title);
  } else {
    append_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(point))));
  }
}

void append_lower(std::string& out, char32_t point) {
  if (point < 0x80) {
    out.push_back(static_cast<char>(point >= 'A' && point <= 'Z' ? point + 32 : point));
  } else if (point == 0x130) {
    out.append("i\u0307");
  } else {
    append_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(point))));
  }
}

bool is_cased(char32_t point) {
  return is_upper(point) || is_lower(point) || is_title(point);
}

// Case_Ignorable, near enough for the one use: where a word ends for the final sigma.
bool is_case_ignorable(char32_t point) {
  switch (category(point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return point == '\'' || point == '.' || point == ':' || point == 0xB7 || point == 0x2019;
  }
}

// The final form of sigma stands after a cased letter and before none.
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  size_t i = begin;
  bool after_cased = false;
  while (i > 0) {
    do {
      --i;
    } while (i > 0 && (static_cast<uint8_t>(text[i]) & 0xC0U) == 0x80);
    size_t at = i;
    char32_t point = next_point(text, at);
    if (is_case_ignorable(point)) continue;
    after_cased = is_cased(point);
    break;
  }
  if (!after_cased) return false;
  for (size_t at = end; at < text.size();) {
    char32_t point = next_point(text, at);
    if (!is_case_ignorable(point)) return !is_cased(point);
  }
  return true;
}

void append_lower_in_context(std::string& out, std::string_view text, size_t begin, size_t end) {
  size_t at = begin;
  char32_t point = next_point(text, at);
  if (point == 0x3A3) {
    out.append(is_final_sigma(text, begin, end) ? "\u03C2" : "\u03C3");
  } else {
    append_lower(out, point);
  }
}

}  // namespace

char32_t next_point(std::string_view text, size_t& position) {
  auto first = static_cast<uint8_t>(text[position]);
  if (first < 0x80) {
    ++position;
    return first;
  }
  utf8proc_int32_t point = -1;
  auto n = utf8proc_iterate(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position,
      static_cast<utf8proc_ssize_t>(text.size() - position), &point);
  if (n <= 0 || point < 0) {
    ++position;
    return 0xFFFD;
  }
  position += static_cast<size_t>(n);
  return static_cast<char32_t>(point);
}

void append_point(std::string& out, char32_t point) {
  std::array<utf8proc_uint8_t, 4> buffer{};
  auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), buffer.data());
  out.append(reinterpret_cast<const char*>(buffer.data()), static_cast<size_t>(n));
}

size_t count_points(std::string_view text) {
  bool is_ascii =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (is_ascii) return text.size();
  size_t n = 0;
  for (size_t at = 0; at < text.size(); ++n)
    next_point(text, at);
  return n;
}

size_t offset_of_point(std::string_view text, size_t index) {
  size_t at = 0;
  while (index-- > 0 && at < text.size())
    next_point(text, at);
  return at;
}

bool is_space(char32_t point) {
  if (point < 0x80) return (point >= 9 && point <= 13) || (point >= 28 && point <= 32);
  return point == 0x85 || point == 0xA0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_alpha(char32_t point) {
  auto c = category(point);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t point) {
  return category(point) == UTF8PROC_CATEGORY_ND;
}
bool is_digit(char32_t point) {
  return is_decimal(point) || point == 0xB2 || point == 0xB3 || point == 0xB9 || point == 0x2070 ||
         (point >= 0x2074 && point <= 0x2079) || (point >= 0x2080 && point <= 0x2089) ||
         (point >= 0x2460 && point <= 0x2468);
}
bool is_numeric(char32_t point) {
  auto c = category(point);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}
bool is_upper(char32_t point) {
  if (point < 0x80) return point >= 'A' && point <= 'Z';
  return category(point) == UTF8PROC_CATEGORY_LU || (point >= 0x2160 && point <= 0x216F) ||
         (point >= 0x24B6 && point <= 0x24CF);
}
bool is_lower(char32_t point) {
  if (point < 0x80) return point >= 'a' && point <= 'z';
  return category(point) == UTF8PROC_CATEGORY_LL || point == 0xAA || point == 0xBA ||
         (point >= 0x2170 && point <= 0x217F) || (point >= 0x24D0 && point <= 0x24E9);
}
bool is_title(char32_t point) {
  return point >= 0x80 && category(point) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t point) {
  if (point < 0x7F) return point >= 32;
  switch (category(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

MarkedString change_case(const MarkedString& text, CaseChange change) {
  const std::string& bytes = text.bytes();
  MarkedString result;
  MarkCursor marks(text);
  bool after_cased = false;
  std::string piece;
  for (size_t at = 0; at < bytes.size();) {
    size_t begin = at;
    char32_t point = next_point(bytes, at);
    piece.clear();
    switch (change) {
      case CaseChange::lower:
        append_lower_in_context(piece, bytes, begin, at);
        break;
      case CaseChange::upper:
        append_upper(piece, point);
        break;
      case CaseChange::title:
      case CaseChange::capitalize:
        if (change == CaseChange::title ? after_cased : begin > 0) {
          append_lower_in_context(piece, bytes, begin, at);
        } else {
          append_title(piece, point);
        }
        break;
      case CaseChange::swap:
        if (is_upper(point)) {
          append_lower_in_context(piece, bytes, begin, at);
        } else if (is_lower(point)) {
          append_upper(piece, point);
        } else {
          piece = bytes.substr(begin, at - begin);
        }
        break;
      case CaseChange::fold:
        if (const SpecialCase* special = find_special(point)) {
          for (size_t i = 0; i < special->upper.size();) {
            append_lower(piece, next_point(special->upper, i));
          }
        } else {
          append_lower(piece, point == 0x3C2 ? 0x3C3 : point);
        }
        break;
    }
    after_cased = is_cased(point);
    result.append(piece, marks.is_input(begin));
  }
  return result;
}

MarkedString title_words(const MarkedString& text) {
  const std::string& bytes = text.bytes();
  MarkedString result;
  size_t begin = 0;
  auto flush = [&](size_t end) {
    if (begin == end) return;
    size_t rest = begin;
    next_point(bytes, rest);
    result.append(change_case(text.part(begin, rest), CaseChange::upper));
    result.append(change_case(text.part(rest, end), CaseChange::lower));
    begin = end;
  };
  // Jinja splits at runs of -, white space, ({[<. The first letter of each piece becomes upper,
  // not title case as with Python's own title(): "SS" of sharp s.
  bool in_separator = false;
  for (size_t at = 0; at < bytes.size();) {
    size_t start = at;
    char32_t point = next_point(bytes, at);
    bool is_separator =
        is_space(point) ||
        (point < 0x80 && point != 0 &&
         std::string_view("-({[<").find(static_cast<char>(point)) != std::string_view::npos);
    if (is_separator != in_separator) {
      flush(start);
      in_separator = is_separator;
    }
  }
  flush(bytes.size());
  return result;
}

MarkedString::Range
strip_range(std::string_view text, const std::string_view* chars, bool left, bool right) {
  auto is_stripped = [&](std::string_view character, char32_t point) {
    if (chars == nullptr) return is_space(point);
    for (size_t at = 0; at < chars->size();) {
      size_t begin = at;
      next_point(*chars, at);
      if (chars->substr(begin, at - begin) == character) return true;
    }
    return false;
  };
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end) {
    size_t at = begin;
    char32_t point = next_point(text, at);
    if (!is_stripped(text.substr(begin, at - begin), point)) break;
    begin = at;
  }
  while (right && end > begin) {
    size_t start = end;
    do {
      --start;
    } while (start > begin && (static_cast<uint8_t>(text[start]) & 0xC0U) == 0x80);
    size_t at = start;
    char32_t point = next_point(text, at);
    if (at < end) break;  // a stray continuation byte
    if (!is_stripped(text.substr(start, end - start), point)) break;
    end = start;
  }
  return {begin, end};
}

}  // namespace nightsweep::jinja
