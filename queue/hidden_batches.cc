#include "queue/hidden_batches.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "queue/submit_lock.h"

namespace nightsweep {

namespace {

// Turns round what the dead have left halfway. The lock is asked for after the row was seen: it was
// taken before the row came, and a submitter that has gone in between has seen to its row.
void send_dead_ones_out(Connection& connection) {
  std::vector<std::pair<int64_t, std::string>> coming;
  connection.read([&] {
    coming.clear();
    Query query = connection.query(
        "SELECT id, public_id FROM batch INDEXED BY batch_hidden WHERE is_hidden = 1"
        " AND status = 'validating'");
    while (query.step())
      coming.emplace_back(query.integer(0), query.text(1));
  });
  const SubmitLock lock(connection.path());
  for (const auto& [batch, public_id] : coming) {
    if (lock.is_held(public_id)) continue;
    connection.write([&, row = batch] {
      connection
          .query(
              "UPDATE batch SET status = 'failed', ended_ms = created_ms WHERE id = ?"
              " AND is_hidden = 1 AND status = 'validating'")
          .with(row)
          .run();
    });
  }
}

}  // namespace

void delete_hidden_batches(Connection& connection) {
  send_dead_ones_out(connection);
  for (;;) {
    std::optional<int64_t> row = connection.read([&]() -> std::optional<int64_t> {
      Query query = connection.query(
          "SELECT id FROM batch INDEXED BY batch_hidden WHERE is_hidden = 1"
          " AND status <> 'validating' LIMIT 1");
      if (!query.step()) return std::nullopt;
      return query.integer(0);
    });
    if (!row) return;
    connection.write([&] {
      int64_t n_deleted =
          connection
              .query("DELETE FROM job WHERE id IN (SELECT id FROM job WHERE batch = ? LIMIT ?)")
              .with(*row)
              .with(kSlice)
              .run();
      if (n_deleted == 0) connection.query("DELETE FROM batch WHERE id = ?").with(*row).run();
    });
  }
}

}  // namespace nightsweep
