// SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once (75).
#pragma once

#include <atomic>

namespace nightsweep {

class StopSignal {
 public:
  static StopSignal& instance();
  // From now on the signals are ours.
  void install();
  bool requested() const { return count_.load() > 0; }
  void request() { count_.fetch_add(1); }
  void reset() { count_.store(0); }  // for tests
  // Sleeps; wakes up early when a stop is requested. True: it is.
  bool wait_s(double seconds) const;

 private:
  StopSignal() = default;
  static void handle(int signal_number);
  std::atomic<int> count_ = 0;
};

}  // namespace nightsweep
