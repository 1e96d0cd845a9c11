#include "runner/fault.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "runner/options.h"

namespace nightsweep {

FaultPlan FaultPlan::parse(std::string_view text) {
  constexpr std::string_view kPoison = "poison:";
  constexpr std::string_view kCrash = "crash:step:";
  constexpr std::string_view kLost = "device-lost:step:";
  FaultPlan plan;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    if (part.starts_with(kPoison) && part.size() > kPoison.size()) {
      plan.poisons_.emplace(part.substr(kPoison.size()));
    } else if (part.starts_with(kCrash)) {
      plan.crash_step_ = parse_count(
          std::string(part.substr(kCrash.size())), "NIGHTSWEEP_FAULT=crash:step", 1, UINT64_MAX);
    } else if (part.starts_with(kLost)) {
      plan.lost_step_ = parse_count(
          std::string(part.substr(kLost.size())), "NIGHTSWEEP_FAULT=device-lost:step", 1,
          UINT64_MAX);
    } else {
      fail(
          ErrorKind::usage,
          "NIGHTSWEEP_FAULT: expected poison:CUSTOM_ID, crash:step:N or device-lost:step:N, parted "
          "by ';', found '{}'",
          part);
    }
  }
  return plan;
}

FaultPlan FaultPlan::from_environment() {
  const char* text = std::getenv("NIGHTSWEEP_FAULT");  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr || *text == '\0') return {};
  log_warning("NIGHTSWEEP_FAULT={} is set: this process will kill itself or lose its device", text);
  return parse(text);
}

void die_at_once() {
  (void)::kill(::getpid(), SIGKILL);
  for (;;)
    ::pause();
}

}  // namespace nightsweep
