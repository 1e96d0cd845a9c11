#include "runner/fault.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "runner/options.h"

namespace nightsweep {

FaultPlan FaultPlan::parse(std::string_view text) {
  constexpr std::string_view kPoison = "poison:";
  constexpr std::string_view kCrash = "crash:step:";
  FaultPlan plan;
  if (text.empty()) return plan;
  if (text.starts_with(kPoison) && text.size() > kPoison.size()) {
    plan.poison_ = text.substr(kPoison.size());
  } else if (text.starts_with(kCrash)) {
    plan.crash_step_ = parse_count(
        std::string(text.substr(kCrash.size())), "NIGHTSWEEP_FAULT=crash:step", 1, UINT64_MAX);
  } else {
    fail(
        ErrorKind::usage, "NIGHTSWEEP_FAULT: expected poison:CUSTOM_ID or crash:step:N, found '{}'",
        text);
  }
  return plan;
}

FaultPlan FaultPlan::from_environment() {
  const char* text = std::getenv("NIGHTSWEEP_FAULT");  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr || *text == '\0') return {};
  log_warning("NIGHTSWEEP_FAULT={} is set: this process will kill itself", text);
  return parse(text);
}

void die_at_once() {
  (void)::kill(::getpid(), SIGKILL);
  for (;;)
    ::pause();
}

}  // namespace nightsweep
