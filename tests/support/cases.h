// Where the shared cases are: NIGHTSWEEP_CASES, else ../shared/cases. A clone has none: tests that
// use them say SKIPPED.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace nightsweep {

inline std::string cases_folder() {
  const char* named = std::getenv("NIGHTSWEEP_CASES");
  return named != nullptr ? named : "../shared/cases";
}

inline bool has_cases(const std::string& part) {
  return std::filesystem::exists(cases_folder() + "/" + part);
}

}  // namespace nightsweep

// REQUIRES: first statement of a test.
#define NEEDS_CASES(part)                                                           \
  if (!::nightsweep::has_cases(part)) {                                             \
    GTEST_SKIP() << "SKIPPED: no " << ::nightsweep::cases_folder() << "/" << (part) \
                 << " (set NIGHTSWEEP_CASES)";                                      \
  }                                                                                 \
  static_assert(true)
