#include "runner/text_input.h"

#include "base/file.h"

namespace nightsweep {

std::string read_text_input(const std::string& path) {
  return read_whole_file(path == "-" ? "/dev/stdin" : path, ErrorKind::input);
}

}  // namespace nightsweep
