// Lines that people INSERT into the table `inbox`.

#include <utility>

#include "queue/sqlite_queue.h"

namespace nightsweep {

std::vector<InboxPart> SqliteQueue::inbox() {
  return connection_.read([&] {
    std::vector<InboxPart> parts;
    Query query = connection_.query(
        "SELECT batch, model, priority, max(id) FROM inbox GROUP BY batch, model, priority"
        " ORDER BY min(id)");
    while (query.step()) {
      parts.push_back(
          {.name = query.text(0),
           .model = query.text(1),
           .priority = static_cast<int32_t>(query.integer(2)),
           .last_id = query.integer(3)});
    }
    return parts;
  });
}

std::vector<Queue::InboxLine>
SqliteQueue::inbox_lines(const InboxPart& part, int64_t after, uint32_t limit) {
  return connection_.read([&] {
    std::vector<InboxLine> lines;
    Query query = connection_.query(
        "SELECT id, line FROM inbox WHERE id > ? AND id <= ? AND batch = ? AND model = ?"
        " AND priority = ? ORDER BY id LIMIT ?");
    query.with(after).with(part.last_id).with(part.name).with(part.model).with(part.priority);
    query.with(limit);
    while (query.step())
      lines.push_back({.id = query.integer(0), .line = query.text(1)});
    return lines;
  });
}

}  // namespace nightsweep
