// What each body parameter does: one table in parameters.cc. Private to jobs/.
#pragma once

#include <string_view>
#include <vector>

#include "jobs/draft.h"
#include "jobs/job.h"

namespace nightsweep {

// Fills all of `job` that comes from its body. Null values count as absent. With `lenient`, what is
// unknown or not supported is listed in job.ignored instead of refused. Returns whether the seed
// was given. Throws Refusal.
//
// REQUIRES: job.endpoint is set; `fields` has no key twice, and the key of the endpoint's text
// (messages or prompt) once.
bool read_parameters(const std::vector<BodyField>& fields, bool lenient, Job& job);

// Two spellings of one parameter (max_tokens, max_completion_tokens): a default for the one must
// not meet a value for the other. The key itself where there is only one spelling.
std::string_view parameter_identity(std::string_view key);

}  // namespace nightsweep
