#include "engine/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/utf8.h"

namespace nightsweep {

namespace {

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

[[noreturn]] void fail_normalizing(size_t n_bytes, utf8proc_ssize_t code) {
  fail(
      ErrorKind::input, "text of {} bytes: normalising it failed: {}", n_bytes,
      utf8proc_errmsg(code));
}

// REQUIRES: `text` is well-formed.
std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t code_point = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(bytes, left, &code_point);
    if (length <= 0) fail_normalizing(text.size(), length);
    constexpr size_t kLongest = 8;  // canonical decompositions have at most four code points
    utf8proc_int32_t parts[kLongest] = {};
    int boundary = 0;
    const utf8proc_ssize_t n_parts = utf8proc_decompose_char(
        code_point, parts, kLongest,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    if (n_parts < 0 || n_parts > static_cast<utf8proc_ssize_t>(kLongest)) {
      fail_normalizing(text.size(), n_parts);
    }
    out.insert(out.end(), parts, parts + n_parts);
    bytes += length;
    left -= length;
  }
  return out;
}

// The library's own ordering is quadratic in the length of a run of marks.
void order_marks(std::span<utf8proc_int32_t> code_points) {
  auto run = code_points.begin();
  while (run != code_points.end()) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(
        run, code_points.end(), [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    run = end;
  }
}

// Appends the composed form; `code_points` are spoilt.
void append_composed(std::span<utf8proc_int32_t> code_points, std::string& out) {
  const utf8proc_ssize_t n = utf8proc_normalize_utf32(
      code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (n < 0) fail_normalizing(code_points.size(), n);
  for (utf8proc_ssize_t i = 0; i < n; ++i) {
    utf8proc_uint8_t bytes[4] = {};
    const utf8proc_ssize_t length =
        utf8proc_encode_char(code_points[static_cast<size_t>(i)], bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
  }
}

void append_nfc(std::string_view text, std::string& out) {
  // Stands before the first trailing consonant of Hangul; the library takes it for one and swallows
  // it. It composes with nothing, so each run between two of them can be composed alone.
  constexpr utf8proc_int32_t kBeforeTrailing = 0x11A7;
  std::vector<utf8proc_int32_t> code_points = decompose(text);
  order_marks(code_points);
  std::span<utf8proc_int32_t> rest(code_points);
  while (!rest.empty()) {
    const auto cut = std::find(rest.begin() + 1, rest.end(), kBeforeTrailing);
    const auto n = static_cast<size_t>(cut - rest.begin());
    append_composed(rest.first(n), out);
    rest = rest.subspan(n);
  }
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
  // Below U+0300 every character is composed and none combines; CC is the first lead byte above.
  return std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

std::string normalize_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t n_valid = valid_utf8_prefix(text);
    append_nfc(text.substr(0, n_valid), out);
    text.remove_prefix(n_valid);
    if (text.empty()) break;
    const size_t n_bad = first_utf8_unit(text).n_bytes;
    out.append(text.substr(0, n_bad));
    text.remove_prefix(n_bad);
  }
  return out;
}

}  // namespace nightsweep
