#include "runner/text_input.h"

#include "base/file.h"

namespace nightsweep {

std::string read_text_input(const std::string& path) {
  return read_whole_file(path == "-" ? "/dev/stdin" : path, ErrorKind::input);
}

std::string_view line_content(std::string_view line, bool is_first) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (is_first && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line.find_first_not_of(" \t") == std::string_view::npos ? std::string_view() : line;
}

}  // namespace nightsweep
