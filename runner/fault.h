// NIGHTSWEEP_FAULT: kills the process or loses its device on purpose, for tests of what must
// survive.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace nightsweep {

class FaultPlan {
 public:
  // "poison:CUSTOM_ID", "crash:step:N", "device-lost:step:N", several parted by ';', or nothing.
  // Throws Error(usage) for anything else.
  static FaultPlan parse(std::string_view text);
  static FaultPlan from_environment();

  bool is_poison(const std::string& custom_id) const { return poisons_.contains(custom_id); }
  bool crashes_at(uint64_t step) const { return crash_step_ != 0 && step == crash_step_; }
  bool loses_device_at(uint64_t step) const { return lost_step_ != 0 && step == lost_step_; }

 private:
  std::set<std::string> poisons_;
  uint64_t crash_step_ = 0;
  uint64_t lost_step_ = 0;
};

// SIGKILL on itself.
[[noreturn]] void die_at_once();

}  // namespace nightsweep
