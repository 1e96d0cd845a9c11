// What the sweeps did: written by the worker every few seconds, read by status.

#include "queue/sqlite_queue.h"

namespace nightsweep {

void SqliteQueue::add_sweeps(const SweepRecord& record) {
  connection_.write([&] {
    connection_
        .query(
            "INSERT INTO sweep (model, begin_ms, end_ms, n_sweeps, prefill_tokens, decode_tokens,"
            " new_tokens, shared_tokens, evictions, resident_bytes, link_bytes, disk_bytes, "
            "sweep_s, queue_s,"
            " wait_s, link_wait_s, ring_wait_s, disk_busy_s, link_share, disk_share, binding,"
            " energy_j)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .with(record.model)
        .with(record.begin_ms)
        .with(record.end_ms)
        .with(record.n_sweeps)
        .with(record.prefill_tokens)
        .with(record.decode_tokens)
        .with(record.new_tokens)
        .with(record.shared_tokens)
        .with(record.evictions)
        .with(record.resident_bytes)
        .with(record.link_bytes)
        .with(record.disk_bytes)
        .with(record.sweep_s)
        .with(record.queue_s)
        .with(record.wait_s)
        .with(record.link_wait_s)
        .with(record.ring_wait_s)
        .with(record.disk_busy_s)
        .with_null_if_negative(record.link_share)
        .with_null_if_negative(record.disk_share)
        .with(record.binding)
        .with_null_if_negative(record.energy_j)
        .run();
  });
}

std::vector<SweepRecord> SqliteQueue::sweeps_since(int64_t end_ms) {
  return connection_.read([&] {
    Query query = connection_.query(
        "SELECT model, begin_ms, end_ms, n_sweeps, prefill_tokens, decode_tokens, new_tokens,"
        " shared_tokens, evictions, resident_bytes, link_bytes, disk_bytes, sweep_s, queue_s, "
        "wait_s, link_wait_s,"
        " ring_wait_s, disk_busy_s, link_share, disk_share, binding, energy_j"
        " FROM sweep INDEXED BY sweep_by_end WHERE end_ms >= ? ORDER BY end_ms, id");
    query.with(end_ms);
    std::vector<SweepRecord> records;
    while (query.step()) {
      int column = 0;
      const auto count = [&] { return static_cast<uint64_t>(query.integer(column++)); };
      const auto number = [&] { return query.real(column++); };
      const auto number_or_none = [&] {
        const double value = query.is_null(column) ? -1 : query.real(column);
        ++column;
        return value;
      };
      SweepRecord& record = records.emplace_back();
      record.model = query.text(column++);
      record.begin_ms = query.integer(column++);
      record.end_ms = query.integer(column++);
      record.n_sweeps = count();
      record.prefill_tokens = count();
      record.decode_tokens = count();
      record.new_tokens = count();
      record.shared_tokens = count();
      record.evictions = count();
      record.resident_bytes = count();
      record.link_bytes = count();
      record.disk_bytes = count();
      record.sweep_s = number();
      record.queue_s = number();
      record.wait_s = number();
      record.link_wait_s = number();
      record.ring_wait_s = number();
      record.disk_busy_s = number();
      record.link_share = number_or_none();
      record.disk_share = number_or_none();
      record.binding = query.text(column++);
      record.energy_j = number_or_none();
    }
    return records;
  });
}

uint64_t SqliteQueue::prune_sweeps(int64_t end_ms) {
  return connection_.write([&] {
    return static_cast<uint64_t>(
        connection_.query("DELETE FROM sweep WHERE end_ms < ?").with(end_ms).run());
  });
}

}  // namespace nightsweep
