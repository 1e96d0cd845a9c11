#include "queue/schema.h"

#include <iterator>
#include <string>

#include "base/error.h"

namespace nightsweep {

namespace {

// Script i moves version i to i + 1.
const char* const kMigrations[] = {kSchemaSql};
static_assert(std::size(kMigrations) == kSchemaVersion);

int64_t pragma(Connection& connection, const char* sql) {
  Query query = connection.query(sql);
  query.step();
  return query.integer(0);
}

// The file's version; 0 for an empty file. Refuses what we must not touch.
int64_t checked_version(Connection& connection) {
  int64_t application_id = pragma(connection, "PRAGMA application_id");
  int64_t version = pragma(connection, "PRAGMA user_version");
  if (application_id != kApplicationId) {
    int64_t n_objects = pragma(connection, "SELECT count(*) FROM sqlite_master");
    if (application_id != 0 || version != 0 || n_objects != 0) {
      fail(
          ErrorKind::queue,
          "{}: expected a Nightsweep queue, found another program's SQLite database "
          "(application_id {:#x}); name another file with --queue",
          connection.path(), application_id);
    }
    return 0;
  }
  if (version > kSchemaVersion) {
    fail(
        ErrorKind::queue,
        "{}: expected queue schema {} or older, found {}: it was written by a newer Nightsweep; "
        "use that version, or another file with --queue",
        connection.path(), kSchemaVersion, version);
  }
  return version;
}

}  // namespace

void prepare_schema(Connection& connection, int64_t now_ms) {
  int64_t version = connection.read([&] { return checked_version(connection); });
  if (version < kSchemaVersion) {
    connection.write([&] {
      // Another process may have been faster.
      for (int64_t from = checked_version(connection); from < kSchemaVersion; ++from) {
        connection.run(kMigrations[from]);
        if (from == 0) {
          connection.query("INSERT INTO meta (name, value) VALUES ('created_ms', ?)")
              .with(std::to_string(now_ms))
              .run();
        }
      }
      connection.run(format("PRAGMA application_id = {}", kApplicationId));
      connection.run(format("PRAGMA user_version = {}", kSchemaVersion));
    });
  }
  connection.use_rollback_journal();
}

}  // namespace nightsweep
