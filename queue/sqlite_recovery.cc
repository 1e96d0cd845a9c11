// What a dead worker left: whose fault its end was, and who is tried again in which company.
//
// A reboot or an orderly end is nobody's fault. Otherwise a job that had something saved since its
// claim is cleared. The others become suspects: their group is claimed in halves from now on, apart
// from everybody else, until the one that kills is alone; three deaths alone bury it. A suspect
// that gains a saved token is cleared at once, so an innocent line loses no more than the wait.

#include <limits.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "queue/sqlite_queue.h"

namespace nightsweep {

namespace {

// Rows of `worker` that are kept for people to look at.
constexpr int64_t kMaxWorkerRows = 100;
constexpr int64_t kMaxSweepRows = 300'000;  // some 35 days without a pause
constexpr int kMostAloneStrikes = 3;

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

void SqliteQueue::become_worker(const WorkerInfo& self) {
  WorkerInfo info = self;
  if (info.pid == 0) info.pid = ::getpid();
  if (info.host.empty()) info.host = host_name();
  if (info.started_ms == 0) info.started_ms = options_.now_ms();
  bool ended_in_order = lock_.take(info.pid, info.host, info.started_ms);
  refuse_damage_after_crash();
  recover(ended_in_order);
  register_owner(info);
  settle();
  prune({});
}

void SqliteQueue::refuse_damage_after_crash() {
  std::string finding = connection_.read([&]() -> std::string {
    Query last = connection_.query("SELECT ended_ms IS NULL FROM worker ORDER BY id DESC LIMIT 1");
    if (!last.step() || last.integer(0) == 0) return "ok";
    Query check = connection_.query("PRAGMA quick_check(1)");
    check.step();
    return check.text(0);
  });
  if (finding != "ok") {
    fail(
        ErrorKind::queue,
        "{}: the database is damaged: {} (copy the file away, recover it with `sqlite3 {} "
        ".recover`, or restore a backup)",
        path(), finding, path());
  }
}

// With the lock held, whatever says that it is running has no worker any more.
void SqliteQueue::recover(bool ended_in_order) {
  connection_.write([&] {
    struct Group {
      int64_t owner;
      int64_t group;
      bool is_blameless;  // a reboot, or an orderly end
    };
    std::vector<Group> groups;
    {
      Query select = connection_.query(
          "SELECT job.owner, job.claim_group,"
          " ? OR coalesce(worker.boot_id <> ? OR worker.ended_ms IS NOT NULL, 0)"
          " FROM job INDEXED BY job_running LEFT JOIN worker ON worker.id = job.owner"
          " WHERE job.state = 'running' GROUP BY job.owner, job.claim_group");
      select.with(ended_in_order ? 1 : 0).with(options_.boot_id);
      while (select.step())
        groups.push_back({select.integer(0), select.integer(1), select.integer(2) != 0});
    }
    for (const Group& group : groups) {
      if (!group.is_blameless) blame(group.owner, group.group);
      connection_
          .query(
              "UPDATE job SET state = 'waiting', owner = NULL, claim_group = NULL, runs_alone = 0,"
              " attempt = attempt - ? WHERE state = 'running' AND owner = ? AND claim_group = ?")
          .with(group.is_blameless ? 1 : 0)
          .with(group.owner)
          .with(group.group)
          .run();
    }
    connection_.query("DELETE FROM gain").run();
    bury();
  });
}

void SqliteQueue::blame(int64_t owner, int64_t group) {
  // Its own checkpoint is what clears a job.
  const std::string unproven =
      " state = 'running' AND owner = ?1 AND claim_group = ?2 AND NOT EXISTS (SELECT 1 FROM"
      " checkpoint WHERE checkpoint.job = job.id AND checkpoint.owner = ?1"
      " AND checkpoint.claim_group = ?2)";
  int64_t n_unproven = 0;
  bool has_gained = false;
  {
    Query count = connection_.query("SELECT count(*) FROM job WHERE" + unproven);
    count.with(owner).with(group).step();
    n_unproven = count.integer(0);
    Query gain = connection_.query("SELECT 1 FROM gain WHERE owner = ? AND claim_group = ?");
    has_gained = gain.with(owner).with(group).step();
  }
  connection_
      .query(
          "UPDATE job SET group_limit = ?3, strikes = strikes + ?4,"
          " alone_strikes = alone_strikes + (?4 AND runs_alone) WHERE" +
          unproven)
      .with(owner)
      .with(group)
      .with(std::max<int64_t>((n_unproven + 1) / 2, 1))
      .with(has_gained ? 0 : 1)
      .run();
}

void SqliteQueue::bury() {
  std::vector<std::pair<int64_t, std::string>> jobs;
  {
    Query select = connection_.query(
        "SELECT id, custom_id FROM job INDEXED BY job_suspect WHERE state = 'waiting'"
        " AND group_limit IS NOT NULL AND alone_strikes >= ?");
    select.with(kMostAloneStrikes);
    while (select.step())
      jobs.emplace_back(select.integer(0), select.text(1));
  }
  for (const auto& [job, custom_id] : jobs) {
    end_waiting(
        job, "quarantined",
        format(
            "the worker died {} times while this request alone was running and before it gained a "
            "token: it is not tried again (nightsweep retry does)",
            kMostAloneStrikes));
    log_warning(
        "{}: put aside: the worker died {} times while it alone was running", custom_id,
        kMostAloneStrikes);
  }
}

void SqliteQueue::register_owner(const WorkerInfo& self) {
  owner_ = connection_.write([&] {
    Query insert = connection_.query(
        "INSERT INTO worker (pid, host, boot_id, model, device, started_ms, seen_ms, progress)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id");
    insert.with(self.pid)
        .with(self.host)
        .with(options_.boot_id)
        .with(self.model)
        .with(self.device)
        .with(self.started_ms)
        .with(options_.now_ms())
        .with_null_if_empty(self.progress);
    insert.step();
    int64_t id = insert.integer(0);
    insert.run();
    connection_.query("DELETE FROM worker WHERE id <= ?").with(id - kMaxWorkerRows).run();
    connection_.query("DELETE FROM sweep WHERE id <= (SELECT max(id) FROM sweep) - ?")
        .with(kMaxSweepRows)
        .run();
    return id;
  });
}

}  // namespace nightsweep
