#include "runner/stop_signal.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/error.h"

namespace nightsweep {

StopSignal& StopSignal::instance() {
  static StopSignal signal;
  return signal;
}

void StopSignal::handle(int /*signal_number*/) {
  static_assert(std::atomic<int>::is_always_lock_free);
  if (instance().count_.fetch_add(1) > 0) ::_exit(static_cast<int>(ErrorKind::interrupted));
}

void StopSignal::install() {
  struct sigaction action {};
  action.sa_handler = handle;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
}

bool StopSignal::wait_s(double seconds) const {
  // Short naps: a signal between the look and the nap costs one nap, not the whole wait.
  constexpr double kNap = 0.05;
  while (seconds > 0 && !requested()) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, kNap)));
    seconds -= kNap;
  }
  return requested();
}

}  // namespace nightsweep
