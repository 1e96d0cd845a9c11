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

// Of one answer at rest, from the newest thousand. 0: there is none.
uint64_t bytes_an_answer(Connection& connection) {
  Query query = connection.query(
      "SELECT coalesce(avg(coalesce(length(CAST(body AS BLOB)), 0) +"
      " coalesce(length(CAST(nightsweep AS BLOB)), 0)), 0)"
      " FROM (SELECT body, nightsweep FROM result ORDER BY sequence DESC LIMIT 1000)");
  query.step();
  return static_cast<uint64_t>(query.integer(0));
}

// The most that an answer may take, over a thousand lines that wait: all tokens that it may have
// (`max_tokens` and `n` of job_to_text), in as many choices as were asked for. A line without a
// limit counts as one of 1,024, and none as more than 4,096: a limit beyond is there to be no
// limit.
uint64_t most_bytes_an_answer(Connection& connection) {
  constexpr uint64_t kBytesAToken = 6;    // English has 4 to 5; other scripts more
  constexpr uint64_t kFrameBytes = 1024;  // the JSON around the text, and timings
  Query query = connection.query(
      "SELECT coalesce(avg(CASE WHEN json_valid(body)"
      " THEN min(coalesce(json_extract(body, '$.max_tokens'), 1024), 4096)"
      "      * coalesce(json_extract(body, '$.n'), 1) ELSE 1024 END), 0)"
      " FROM (SELECT request.body FROM job JOIN request ON request.job = job.id"
      " WHERE job.state = 'waiting' LIMIT 1000)");
  query.step();
  return kFrameBytes + kBytesAToken * static_cast<uint64_t>(query.integer(0));
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
    {
      Query query = connection_.query(
          "SELECT coalesce(sum(n_total - n_completed - n_failed), 0) FROM batch"
          " WHERE ended_ms IS NULL");
      query.step();
      health.n_unanswered = static_cast<uint64_t>(query.integer(0));
    }
    if (health.n_unanswered > 0) {
      uint64_t each = bytes_an_answer(connection_);
      if (each == 0) each = most_bytes_an_answer(connection_);
      health.unanswered_bytes = health.n_unanswered * each;
    }
    Query query = connection_.query("PRAGMA integrity_check(1)");
    query.step();
    health.integrity = query.text(0);
  });
  return health;
}

}  // namespace nightsweep
