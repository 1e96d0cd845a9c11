// The schema of the queue's file: creating it, checking whose it is, moving it up.
#pragma once

#include <cstdint>

#include "queue/connection.h"

namespace nightsweep {

extern const char* const kSchemaSql;  // queue/schema.sql

inline constexpr int64_t kApplicationId = 0x4E535751;  // "NSWQ"
inline constexpr int64_t kSchemaVersion = 1;

// Makes the file a queue of this version: an empty one gets the schema, an older one is migrated,
// in one transaction. Throws Error(queue) for a newer one and for a file that is no queue, without
// having written to it.
void prepare_schema(Connection& connection, int64_t now_ms);

}  // namespace nightsweep
