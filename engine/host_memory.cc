#include "engine/host_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/units.h"

namespace nightsweep {

uint64_t available_ram() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  fail(ErrorKind::device, "/proc/meminfo has no MemAvailable; give --ram");
}

uint64_t default_ram_budget() {
  const uint64_t available = available_ram();
  const uint64_t margin = std::max(kHostMarginBytes, available / 10);
  return available > 2 * margin ? available - margin : available / 2;
}

std::string locked_memory_limit_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "unlimited";
  }
  return size_text(limit.rlim_cur);
}

}  // namespace nightsweep
