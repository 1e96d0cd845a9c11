// The text of a request: `messages` of a chat, `prompt` of a completion. Private to jobs/.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "jobs/field.h"
#include "jobs/job.h"

namespace nightsweep {

// Returns the messages as the template gets them: text parts joined with line feeds, members that
// are null left out (but for `content`). With `lenient`, unknown members are left out and listed
// in `ignored`. Throws Refusal.
Json read_messages(const Field& field, bool lenient, std::vector<std::string>& ignored);

// A string, a list of strings, a list of token ids, or a list of such lists; one or more.
std::vector<Prompt> read_prompt(const Field& field);

}  // namespace nightsweep
