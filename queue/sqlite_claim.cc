// Who comes next: suspects of an earlier death first and apart, then batches by priority and their
// fair share.

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "queue/sqlite_queue.h"

namespace nightsweep {

namespace {

// Without being served for so long a batch counts as one level of priority higher.
constexpr int64_t kAgingMs = 10 * 60 * 1000;

}  // namespace

// Without statistics SQLite might take another index and sort a million rows.
const char* const kNextJobsSql =
    "SELECT id FROM job INDEXED BY job_waiting WHERE batch = ? AND model = ? AND state = 'waiting'"
    " AND group_limit IS NULL ORDER BY length DESC, id LIMIT ?";

const char* const kNextSuspectsSql =
    "SELECT id FROM job INDEXED BY job_suspect WHERE batch = ? AND model = ? AND state = 'waiting'"
    " AND group_limit IS NOT NULL LIMIT ?";

// An open batch on the way to its share of the places.
struct SqliteQueue::Candidate {
  int64_t batch = 0;
  int64_t level = 0;  // priority, and what waiting added
  int64_t n_running = 0;
  int64_t since_ms = 0;  // last served, or submitted
  std::vector<int64_t> next_jobs;
  size_t n_taken = 0;
  bool is_looked_up = false;
};

std::vector<int64_t> SqliteQueue::models_of(const std::vector<std::string>& names) {
  std::vector<int64_t> rows;
  for (const std::string& name : names) {
    if (auto row = row_of("SELECT id FROM model WHERE name = ?", name)) rows.push_back(*row);
  }
  if (!names.empty()) return rows;
  Query query = connection_.query("SELECT id FROM model ORDER BY id");
  while (query.step())
    rows.push_back(query.integer(0));
  return rows;
}

// Highest level first, then who has waited longest.
std::vector<SqliteQueue::Candidate> SqliteQueue::candidates(
    std::optional<int64_t> batch,
    int64_t now_ms) {
  std::vector<Candidate> all;
  Query query = connection_.query(
      "SELECT id, priority, n_running, max(created_ms, coalesce(served_ms, 0)) FROM batch"
      " INDEXED BY batch_open WHERE ended_ms IS NULL AND status = 'in_progress'");
  while (query.step()) {
    if (batch && query.integer(0) != *batch) continue;
    Candidate candidate;
    candidate.batch = query.integer(0);
    candidate.n_running = query.integer(2);
    candidate.since_ms = query.integer(3);
    // A clock that was set back adds nothing.
    candidate.level =
        query.integer(1) + std::max<int64_t>(now_ms - candidate.since_ms, 0) / kAgingMs;
    all.push_back(std::move(candidate));
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    if (a.level != b.level) return a.level > b.level;
    return a.since_ms != b.since_ms ? a.since_ms < b.since_ms : a.batch < b.batch;
  });
  return all;
}

std::vector<std::string> SqliteQueue::waiting_models() {
  int64_t now_ms = options_.now_ms();
  return connection_.read([&] {
    std::vector<std::pair<int64_t, std::string>> models;
    {
      Query query = connection_.query("SELECT id, name FROM model ORDER BY id");
      while (query.step())
        models.emplace_back(query.integer(0), query.text(1));
    }
    std::vector<std::string> names;
    // One step into an index for each batch and model, and no walk over the jobs.
    for (const Candidate& candidate : candidates(std::nullopt, now_ms)) {
      std::erase_if(models, [&](const auto& model) {
        for (const char* sql : {kNextJobsSql, kNextSuspectsSql}) {
          Query next = connection_.query(sql);
          if (!next.with(candidate.batch).with(model.first).with(1).step()) continue;
          names.push_back(model.second);
          return true;
        }
        return false;
      });
      if (models.empty()) break;
    }
    return names;
  });
}

bool SqliteQueue::each_waiting(
    const std::string& batch,
    const std::string& model,
    uint32_t most,
    const std::function<void(const WaitingRequest&)>& show) {
  const std::vector<int64_t> jobs = connection_.read([&] {
    std::vector<int64_t> found;
    const auto batch_row = row_of("SELECT id FROM batch WHERE public_id = ?", batch);
    const auto model_row = row_of("SELECT id FROM model WHERE name = ?", model);
    if (!batch_row || !model_row) return found;
    for (const char* sql : {kNextJobsSql, kNextSuspectsSql}) {
      Query next = connection_.query(sql);
      next.with(*batch_row).with(*model_row).with(uint64_t{most} + 1);
      while (next.step())
        found.push_back(next.integer(0));
    }
    return found;
  });
  if (jobs.size() > most) return false;
  for (const int64_t job : jobs) {
    const auto request = connection_.read([&]() -> std::optional<WaitingRequest> {
      Query query = connection_.query(
          "SELECT created_ms, body FROM job JOIN batch ON batch.id = job.batch"
          " JOIN request ON request.job = job.id WHERE job.id = ?");
      if (!query.with(job).step()) return std::nullopt;  // damage is for claim() to say
      return WaitingRequest{.submitted_ms = query.integer(0), .request = query.text(1)};
    });
    if (request) show(*request);
  }
  return true;
}

// The smallest group first: who is closest to being found.
std::vector<SqliteQueue::Picked> SqliteQueue::pick_suspects(
    const ClaimRequest& request,
    std::optional<int64_t> batch,
    int64_t model,
    ClaimOutcome::Blocked* blocked) {
  std::vector<Picked> picked;
  int64_t limit = 0;
  Query query = connection_.query(
      "SELECT job.id, group_limit FROM job INDEXED BY job_suspect JOIN batch ON batch.id = "
      "job.batch"
      " WHERE state = 'waiting' AND group_limit IS NOT NULL AND status = 'in_progress'"
      " AND job.model = ?1 AND (?2 IS NULL OR job.batch = ?2) ORDER BY group_limit, job.id LIMIT "
      "?3");
  query.with(model).with_null_if_zero(batch.value_or(0)).with(request.n);
  while (query.step()) {
    if (limit == 0) limit = query.integer(1);
    if (query.integer(1) != limit || picked.size() >= static_cast<size_t>(limit)) break;
    picked.push_back({.job = query.integer(0), .is_suspect = true, .runs_alone = limit == 1});
  }
  if (picked.empty()) return picked;
  if (limit == 1 && request.n_in_flight > 0) {
    *blocked = ClaimOutcome::Blocked::until_empty;
    return {};
  }
  if (request.has_unproven) {
    *blocked = ClaimOutcome::Blocked::until_proven;
    return {};
  }
  return picked;
}

// Places of one level go to whoever has the fewest; the next level gets what is left.
std::vector<SqliteQueue::Picked> SqliteQueue::pick_fairly(
    std::vector<Candidate> open,
    const std::vector<int64_t>& models,
    uint32_t n) {
  std::vector<Picked> picked;
  auto look_up = [&](Candidate& candidate) {
    candidate.is_looked_up = true;
    for (int64_t model : models) {
      Query query = connection_.query(kNextJobsSql);
      query.with(candidate.batch).with(model).with(n);
      while (candidate.next_jobs.size() < n && query.step())
        candidate.next_jobs.push_back(query.integer(0));
    }
  };
  for (auto level_begin = open.begin(); level_begin != open.end() && picked.size() < n;) {
    auto level_end = std::find_if(level_begin, open.end(), [&](const Candidate& candidate) {
      return candidate.level != level_begin->level;
    });
    while (picked.size() < n) {
      Candidate* next = nullptr;
      for (auto candidate = level_begin; candidate != level_end; ++candidate) {
        if (next != nullptr && candidate->n_running >= next->n_running) continue;
        if (!candidate->is_looked_up) look_up(*candidate);
        if (candidate->n_taken < candidate->next_jobs.size()) next = &*candidate;
      }
      if (next == nullptr) break;
      picked.push_back({.job = next->next_jobs[next->n_taken++]});
      ++next->n_running;
    }
    level_begin = level_end;
  }
  return picked;
}

ClaimOutcome SqliteQueue::claim(const ClaimRequest& request) {
  if (owner_ == 0) fail(ErrorKind::internal, "claim() before become_worker()");
  if (request.n == 0) return {};
  int64_t now_ms = options_.now_ms();
  int64_t group = n_claims_ + 1;
  auto outcome = connection_.write([&] {
    ClaimOutcome found;
    std::optional<int64_t> batch;
    if (request.batch) {
      batch = row_of("SELECT id FROM batch WHERE public_id = ?", *request.batch);
      if (!batch) return found;
    }
    std::vector<int64_t> models = models_of(request.models);
    std::vector<Picked> picked;
    for (int64_t model : models) {
      if (picked.empty()) picked = pick_suspects(request, batch, model, &found.blocked);
      if (found.blocked != ClaimOutcome::Blocked::no) return found;
    }
    if (picked.empty()) picked = pick_fairly(candidates(batch, now_ms), models, request.n);
    found.jobs = hand_out(picked, group, now_ms);
    return found;
  });
  n_claims_ = group;
  return outcome;
}

std::vector<ClaimedJob>
SqliteQueue::hand_out(const std::vector<Picked>& picked, int64_t group, int64_t now_ms) {
  std::vector<ClaimedJob> claimed;
  claimed.reserve(picked.size());
  for (const Picked& pick : picked) {
    uint32_t attempt = 0;
    int64_t batch = 0;
    {
      Query update = connection_.query(
          "UPDATE job SET state = 'running', attempt = attempt + 1, owner = ?, claim_group = ?,"
          " started_ms = ?, runs_alone = ? WHERE id = ? AND state = 'waiting'"
          " RETURNING attempt, batch");
      update.with(owner_).with(group).with(now_ms).with(pick.runs_alone ? 1 : 0).with(pick.job);
      if (!update.step()) continue;
      attempt = static_cast<uint32_t>(update.integer(0));
      batch = update.integer(1);
      update.run();
    }
    ClaimedJob& job = claimed.emplace_back(read_claimed(pick.job, attempt, batch));
    job.claim.group = group;
    job.is_suspect = pick.is_suspect;
  }
  return claimed;
}

ClaimedJob SqliteQueue::read_claimed(int64_t job, uint32_t attempt, int64_t batch) {
  ClaimedJob claimed;
  claimed.claim.job = job;
  claimed.claim.attempt = attempt;
  Query of_batch = connection_.query("SELECT public_id, created_ms FROM batch WHERE id = ?");
  of_batch.with(batch).step();
  claimed.batch = of_batch.text(0);
  claimed.submitted_ms = of_batch.integer(1);
  Query of_job = connection_.query(
      "SELECT custom_id, line, body, identity, data FROM job JOIN request ON request.job = job.id"
      " LEFT JOIN checkpoint ON checkpoint.job = job.id WHERE job.id = ?");
  if (!of_job.with(job).step()) {
    fail(
        ErrorKind::queue,
        "{}: job {} of {} has no request (the database is damaged: restore a backup)", path(), job,
        claimed.batch);
  }
  claimed.custom_id = of_job.text(0);
  claimed.line = static_cast<uint64_t>(of_job.integer(1));
  claimed.request = of_job.text(2);
  claimed.checkpoint_identity = of_job.text(3);
  claimed.checkpoint = of_job.text(4);
  return claimed;
}

}  // namespace nightsweep
