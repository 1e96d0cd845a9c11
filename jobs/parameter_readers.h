// Readers of the parameters that are more than one number or switch. Private to jobs/.
#pragma once

#include <cstdint>
#include <limits>

#include "jobs/draft.h"
#include "jobs/field.h"

namespace nightsweep {

inline constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

// Each puts the value of its field into the job and throws Refusal where it is wrong.
void read_stop(const Field& field, Draft& draft);
void read_stop_token_ids(const Field& field, Draft& draft);
void read_logit_bias(const Field& field, Draft& draft);
void read_template_kwargs(const Field& field, Draft& draft);
void read_tools(const Field& field, Draft& draft);
void read_tool_choice(const Field& field, Draft& draft);
void read_documents(const Field& field, Draft& draft);
void read_allowed_token_ids(const Field& field, Draft& draft);
void read_bad_words(const Field& field, Draft& draft);
void read_truncation(const Field& field, Draft& draft);

}  // namespace nightsweep
