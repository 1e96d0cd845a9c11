// The schema of the queue's file: creating it, checking whose it is, moving it up.
#pragma once

#include <cstdint>
#include <functional>

#include "queue/connection.h"

namespace nightsweep {

extern const char* const kTablesSql;    // queue/schema.sql
extern const char* const kViewsSql;     // queue/views.sql
extern const char* const kMigrate1Sql;  // queue/migrate_1.sql
extern const char* const kMigrate2Sql;  // queue/migrate_2.sql
extern const char* const kMigrate3Sql;  // queue/migrate_3.sql

inline constexpr int64_t kApplicationId = 0x4E535751;  // "NSWQ"
inline constexpr int64_t kSchemaVersion = 4;

// Makes the file a queue of this version: an empty one gets the schema, an older one is migrated in
// one transaction, once `before_migration` (its version) has returned. Throws Error(queue) for a
// newer one and for a file that is no queue, without having written to it.
void prepare_schema(
    Connection& connection,
    int64_t now_ms,
    const std::function<void(int64_t version)>& before_migration);
// PRAGMA user_version; 0 for an empty file. Throws as prepare_schema() does.
int64_t schema_version(Connection& connection);

}  // namespace nightsweep
