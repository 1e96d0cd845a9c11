// Where the shared cases are: NIGHTSWEEP_CASES, else ../shared/cases. A clone has none: tests that
// use them say SKIPPED.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace nightsweep {

inline std::string cases_folder() {
  const char* named = std::getenv("NIGHTSWEEP_CASES");
  return named != nullptr ? named : "../shared/cases";
}

inline bool has_cases(const std::string& part) {
  return std::filesystem::exists(cases_folder() + "/" + part);
}

// A list of token ids, as the cases have it.
inline std::vector<uint32_t> ids_of(const Json& list) {
  std::vector<uint32_t> ids;
  for (const Json& id : list.as_array())
    ids.push_back(static_cast<uint32_t>(id.as_integer()));
  return ids;
}

}  // namespace nightsweep

// REQUIRES: first statement of a test.
#define NEEDS_CASES(part)                                                           \
  if (!::nightsweep::has_cases(part)) {                                             \
    GTEST_SKIP() << "SKIPPED: no " << ::nightsweep::cases_folder() << "/" << (part) \
                 << " (set NIGHTSWEEP_CASES)";                                      \
  }                                                                                 \
  static_assert(true)
