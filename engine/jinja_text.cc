#include "engine/jinja_text.h"

#include <algorithm>

#include "engine/jinja_unicode.h"

namespace nightsweep::jinja {
namespace {

struct Piece {
  size_t begin;
  size_t end;
};

std::vector<Piece> words_of(std::string_view bytes) {
  std::vector<Piece> words;
  bool in_word = false;
  for (size_t at = 0; at < bytes.size();) {
    size_t begin = at;
    bool is_blank = is_space(next_point(bytes, at));
    if (is_blank) {
      in_word = false;
    } else if (!in_word) {
      in_word = true;
      words.push_back({begin, at});
    } else {
      words.back().end = at;
    }
  }
  return words;
}

bool is_line_end(char32_t point) {
  return (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
         point == 0x2028 || point == 0x2029;
}

std::vector<MarkedString> parts_of(const MarkedString& text, const std::vector<Piece>& pieces) {
  std::vector<MarkedString> parts;
  parts.reserve(pieces.size());
  for (Piece piece : pieces)
    parts.push_back(text.part(piece.begin, piece.end));
  return parts;
}

}  // namespace

std::vector<MarkedString>
split(const MarkedString& text, const std::string_view* separator, int64_t limit) {
  std::string_view bytes = text.bytes();
  std::vector<Piece> pieces;
  if (separator == nullptr) {
    pieces = words_of(bytes);
    auto n = static_cast<size_t>(limit);
    if (limit >= 0 && pieces.size() > n) {
      // The rest keeps its white space at the end.
      pieces.resize(n + 1);
      pieces.back().end = bytes.size();
    }
    return parts_of(text, pieces);
  }
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(pieces.size()) < limit) {
    size_t found = bytes.find(*separator, begin);
    if (found == std::string_view::npos) break;
    pieces.push_back({begin, found});
    begin = found + separator->size();
  }
  pieces.push_back({begin, bytes.size()});
  return parts_of(text, pieces);
}

std::vector<MarkedString>
split_right(const MarkedString& text, const std::string_view* separator, int64_t limit) {
  std::string_view bytes = text.bytes();
  std::vector<Piece> pieces;
  if (separator == nullptr) {
    pieces = words_of(bytes);
    auto n = static_cast<size_t>(limit);
    if (limit >= 0 && pieces.size() > n) {
      size_t extra = pieces.size() - n - 1;
      pieces.erase(pieces.begin(), pieces.begin() + static_cast<ptrdiff_t>(extra));
      pieces.front().begin = 0;
    }
    return parts_of(text, pieces);
  }
  size_t end = bytes.size();
  while ((limit < 0 || static_cast<int64_t>(pieces.size()) < limit) && end >= separator->size()) {
    size_t found = bytes.rfind(*separator, end - separator->size());
    if (found == std::string_view::npos) break;
    pieces.push_back({found + separator->size(), end});
    end = found;
  }
  pieces.push_back({0, end});
  std::reverse(pieces.begin(), pieces.end());
  return parts_of(text, pieces);
}

std::vector<MarkedString> split_lines(const MarkedString& text, bool keep_ends) {
  std::string_view bytes = text.bytes();
  std::vector<Piece> pieces;
  size_t line = 0;
  for (size_t at = 0; at < bytes.size();) {
    size_t begin = at;
    char32_t point = next_point(bytes, at);
    if (!is_line_end(point)) continue;
    if (point == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    pieces.push_back({line, keep_ends ? at : begin});
    line = at;
  }
  if (line < bytes.size()) pieces.push_back({line, bytes.size()});
  return parts_of(text, pieces);
}

MarkedString strip(const MarkedString& text, const std::string_view* chars, bool left, bool right) {
  auto range = strip_range(text.bytes(), chars, left, right);
  return text.part(range.begin, range.end);
}

MarkedString pad(const MarkedString& text, int64_t width, Align align, std::string_view fill) {
  auto missing = width - static_cast<int64_t>(count_points(text.bytes()));
  if (missing <= 0) return text;
  int64_t left = 0;
  if (align == Align::right) left = missing;
  if (align == Align::center) left = missing / 2 + (missing & width & 1);
  MarkedString result;
  for (int64_t i = 0; i < left; ++i)
    result.append(fill, false);
  result.append(text);
  for (int64_t i = left; i < missing; ++i)
    result.append(fill, false);
  return result;
}

}  // namespace nightsweep::jinja
