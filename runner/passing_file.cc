#include "runner/passing_file.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace nightsweep {

namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<const PassingFile*> current = nullptr;
static_assert(std::atomic<const PassingFile*>::is_always_lock_free);

}  // namespace

PassingFile::PassingFile(std::string path)
    : path_(std::move(path)), partial_path_(AtomicFile::partial_path(path_)) {
  const PassingFile* none = nullptr;
  if (!current.compare_exchange_strong(none, this)) {
    fail(ErrorKind::internal, "{}: {} is still there", path_, none->path_);
  }
  for (const int number : kSignals)
    std::signal(number, handle);
}

PassingFile::~PassingFile() {
  remove();
  for (const int number : kSignals)
    std::signal(number, SIG_DFL);
  current = nullptr;
}

// Calls what a handler of signals may call, and no more.
void PassingFile::remove() const {
  ::unlink(partial_path_.c_str());
  ::unlink(path_.c_str());
}

void PassingFile::handle(int signal_number) {
  if (const PassingFile* file = current.load()) file->remove();
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

}  // namespace nightsweep
