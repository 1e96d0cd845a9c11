// SHA-256, for naming files by their content.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace nightsweep {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(const void* data, size_t size_bytes);
  void add(std::string_view text) { add(text.data(), text.size()); }
  // 64 hexadecimal digits. REQUIRES: called once, last.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// hex() of all bytes of the file. Throws Error(kind) that names the path.
std::string sha256_of_file(const std::string& path, ErrorKind kind);

}  // namespace nightsweep
