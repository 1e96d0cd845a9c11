// Batches that nobody sees (batch.is_hidden): on their way out, as `prune` and a refused submit
// send them, or on their way in, with status 'validating' and a lock while their submitter lives.
#pragma once

#include <cstdint>

#include "queue/connection.h"

namespace nightsweep {

// Jobs of one transaction that walks over many: others wait for no longer than that.
inline constexpr int64_t kSlice = 5000;

// Deletes those on their way out, and those on their way in whose submitter is dead. In slices: a
// killed one is finished by the next call.
void delete_hidden_batches(Connection& connection);

}  // namespace nightsweep
