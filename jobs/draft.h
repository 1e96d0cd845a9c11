// A job in the making. Private to jobs/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/field.h"
#include "jobs/job.h"

namespace nightsweep {

// A parameter of a body, or a default from --set that the body does not override.
struct BodyField {
  std::string_view key;
  Field field;
};

// The job, and fields that can be judged only when all are read.
struct Draft {
  explicit Draft(Job& target) : job(target) {}

  Job& job;
  bool lenient = false;
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> max_completion_tokens;
  std::optional<int64_t> best_of;
  std::optional<int64_t> seed;
  std::optional<bool> add_generation_prompt;
  std::optional<bool> add_special_tokens;
  std::string tool_choice;  // empty: not given
};

// Fills what depends on several fields and checks what they mean together; `fields` are where they
// came from. Throws Refusal.
void settle(Draft& draft, const std::vector<BodyField>& fields);

}  // namespace nightsweep
