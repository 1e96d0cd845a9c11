// The one exception of the program. Its kind decides the exit code; its text is for the user and
// says what was expected, what was found, and what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace nightsweep {

// The values are the exit codes of the program.
enum class ErrorKind {
  usage = 2,         // the command line is wrong
  input = 3,         // the input file is refused
  model = 4,         // the model is missing, damaged or not supported
  device = 5,        // the device is not there, or too small
  queue = 6,         // the queue cannot be used
  storage = 7,       // disk full, read-only, I/O error
  internal = 70,     // a fault of ours
  interrupted = 75,  // stopped by a signal with work left
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(kind, fmt::format(text, std::forward<Args>(args)...));
}

// "No space left on device (errno 28)". Any thread.
std::string errno_text(int error_number);

// The one place where errno becomes an Error: "CONTEXT: reason (what to do)". ENOSPC, EROFS, EIO
// and EDQUOT are always of kind storage, whatever `kind` says.
[[noreturn]] void fail_errno(ErrorKind kind, int error_number, std::string_view context);

}  // namespace nightsweep
