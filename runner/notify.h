// What the service manager is told over $NOTIFY_SOCKET (sd_notify(3)). Outside of a service of type
// notify every call does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace nightsweep {

class ServiceNotifier {
 public:
  // `socket_path`: a path, "@NAME" for an abstract one, or empty for nobody. watchdog_us: how often
  // a sign of life is expected; 0: never.
  ServiceNotifier(std::string socket_path, uint64_t watchdog_us);
  // $NOTIFY_SOCKET and $WATCHDOG_USEC ($WATCHDOG_PID: of this process or missing).
  static ServiceNotifier from_environment();

  void ready();
  void stopping();
  void status(std::string_view text);  // sent when it has changed
  // The work has come further; sent at most four times in the watchdog's time. Call it where
  // progress is seen, not from a timer: a hung step must look hung.
  void alive();
  // What follows takes up to so long, without signs of life: loading a model, or the last save.
  void expect_silence(double seconds);
  void end_silence();

 private:
  void send(std::string_view message);

  std::string socket_path_;
  uint64_t watchdog_us_;
  std::string last_status_;
  std::chrono::steady_clock::time_point last_alive_;
};

}  // namespace nightsweep
