// What a checkpoint holds: the tokens so far of every choice of a job, finished ones included.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/job.h"

namespace nightsweep {

// "[[1,2,3],[]]": JSON, so that SQL can look into it.
std::string checkpoint_to_text(const std::vector<TokenIds>& choices);
// nullopt: not a checkpoint of so many choices, or with ids beyond the vocabulary.
std::optional<std::vector<TokenIds>>
checkpoint_from_text(std::string_view text, size_t n_choices, uint32_t n_vocab);

}  // namespace nightsweep
