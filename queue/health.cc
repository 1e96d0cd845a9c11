// What doctor tells of the queue's file.

#include <sqlite3.h>

#include <filesystem>

#include "queue/schema.h"
#include "queue/sqlite_queue.h"

namespace nightsweep {

namespace {

// sqlite.org/wal.html: the WAL-reset bug is in 3.7.0 to 3.51.2; fixed in 3.51.3 and, as a
// back-port, in 3.50.7. 3.52.0 was withdrawn.
bool has_wal_fix(int version) {
  constexpr int kFixed = 3'051'003;
  constexpr int kBackport = 3'050'007;
  constexpr int kBackportEnd = 3'051'000;
  constexpr int kWithdrawn = 3'052'000;
  if (version == kWithdrawn) return false;
  return version >= kFixed || (version >= kBackport && version < kBackportEnd);
}

}  // namespace

QueueHealth SqliteQueue::health() {
  QueueHealth health;
  health.sqlite_version = sqlite3_libversion();
  health.has_wal_fix = has_wal_fix(sqlite3_libversion_number());
  health.schema_version = schema_version(connection_);
  std::error_code ignored;
  health.file_bytes = std::filesystem::file_size(path(), ignored);
  bool is_alive = lock_.is_held();
  connection_.read([&] {
    {
      Query query = connection_.query("PRAGMA journal_mode");
      query.step();
      health.journal_mode = query.text(0);
    }
    {
      Query query =
          connection_.query("SELECT ended_ms IS NULL FROM worker ORDER BY id DESC LIMIT 1");
      health.ended_uncleanly = query.step() && query.integer(0) != 0 && !is_alive;
    }
    Query query = connection_.query("PRAGMA integrity_check(1)");
    query.step();
    health.integrity = query.text(0);
  });
  return health;
}

}  // namespace nightsweep
