#include "base/error.h"

#include <cerrno>
#include <system_error>

namespace nightsweep {

namespace {

const char* remedy(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return " (free some space and start again; what was finished is kept)";
    case EROFS:
      return " (choose a place that can be written)";
    case EACCES:
    case EPERM:
      return " (check owner and permissions)";
    case ENOENT:
      return " (check the path)";
    case EMFILE:
      return " (raise the limit with ulimit -n)";
    default:
      return "";
  }
}

}  // namespace

std::string errno_text(int error_number) {
  return format("{} (errno {})", std::generic_category().message(error_number), error_number);
}

void fail_errno(ErrorKind kind, int error_number, std::string_view context) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EROFS:
    case EIO:
      kind = ErrorKind::storage;
      break;
    default:
      break;
  }
  fail(
      kind, "{}: {}{}", context, std::generic_category().message(error_number),
      remedy(error_number));
}

}  // namespace nightsweep
