#include "queue/schema.h"

#include <iterator>
#include <string>

#include "base/error.h"

namespace nightsweep {

namespace {

// Script i moves the tables from version i + 1 to i + 2.
const char* const kMigrations[] = {kMigrate1Sql, kMigrate2Sql, kMigrate3Sql};
static_assert(std::size(kMigrations) == kSchemaVersion - 1);

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

// Views and triggers name columns that a migration changes: they are made anew.
void drop_views(Connection& connection) {
  std::string script;
  {
    Query query =
        connection.query("SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')");
    while (query.step())
      script += format("DROP {} IF EXISTS \"{}\";", query.text(0), query.text(1));
  }
  connection.run(script);
}

}  // namespace

int64_t schema_version(Connection& connection) {
  return connection.read([&] { return checked_version(connection); });
}

void prepare_schema(
    Connection& connection,
    int64_t now_ms,
    const std::function<void(int64_t version)>& before_migration) {
  int64_t version = schema_version(connection);
  if (version > 0 && version < kSchemaVersion) before_migration(version);
  if (version < kSchemaVersion) {
    connection.write([&] {
      int64_t from = checked_version(connection);
      if (from == kSchemaVersion) return;  // another process was faster
      if (from == 0) {
        connection.run(kTablesSql);
        connection.query("INSERT INTO meta (name, value) VALUES ('created_ms', ?)")
            .with(std::to_string(now_ms))
            .run();
      } else {
        drop_views(connection);
        for (; from < kSchemaVersion; ++from)
          connection.run(kMigrations[from - 1]);
      }
      connection.run(kViewsSql);
      connection.run(format("PRAGMA application_id = {}", kApplicationId));
      connection.run(format("PRAGMA user_version = {}", kSchemaVersion));
    });
  }
  connection.use_rollback_journal();
}

}  // namespace nightsweep
