// The owner of the machine comes first: what says that somebody else wants it now.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nightsweep {

struct OwnerOptions {
  std::string stop_file;  // work waits while it is there; empty: none
  bool yields_to_battery = true;
  bool yields_to_gpu_users = false;
  std::string power_folder = "/sys/class/power_supply";
  std::vector<std::string> gpu_command = {"nvidia-smi", "pmon", "-c", "1", "-s", "um"};
};

class OwnerWatch {
 public:
  explicit OwnerWatch(OwnerOptions options) : options_(std::move(options)) {}

  // Why work should wait, as "on battery power"; nullopt: it may go on. Cheap; the GPU is asked
  // every ten seconds at most. A GPU that cannot be asked stops nothing.
  std::optional<std::string> wants_machine();

 private:
  std::optional<std::string> gpu_user();

  OwnerOptions options_;
  std::optional<std::chrono::steady_clock::time_point> last_gpu_look_;
  std::optional<std::string> last_gpu_user_;
};

// No mains supply is online and a battery is discharging.
bool is_on_battery(const std::string& power_folder);

// The first process in a table of `nvidia-smi pmon -s um` that is not `own_pid` and takes 5% of the
// GPU's time or 512 MiB of its memory; "game (pid 123)". The columns are found by their names.
std::optional<std::string> find_gpu_user(std::string_view table, int64_t own_pid);

}  // namespace nightsweep
