// Every operation of a whole run fails once, in every way; what was acknowledged is there
// afterwards.
//
// The walk takes each n-th operation; NIGHTSWEEP_FAULTS=10000 walks on, with other seeds, until so
// many faults were injected.

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/log.h"
#include "queue/queue_fixture.h"
#include "support/fault_vfs.h"

namespace nightsweep {
namespace {

using Fault = FaultVfs::Fault;

struct Kind {
  Fault fault;
  const char* name;
};
constexpr Kind kKinds[] = {{Fault::write, "write"}, {Fault::full, "disk full"},
                           {Fault::sync, "sync"},   {Fault::truncate, "truncate"},
                           {Fault::open, "open"},   {Fault::torn_write, "torn write"},
                           {Fault::kill, "kill"},   {Fault::power_cut, "power cut"}};

// What the program was told that it is done.
struct Acknowledged {
  std::set<std::string> batches;
  std::set<std::string> cancelled;
  std::set<std::string> pruned;
  std::map<int64_t, std::string> answers;  // by job
};

class FaultWalk : public QueueTest {
 public:
  FaultWalk() {
    busy_timeout_ms_ = 20;
    set_up_log(LogLevel::error, false);  // each fault would warn
  }
  ~FaultWalk() override { set_up_log(LogLevel::info, false); }

  void complete(Queue& queue, const std::vector<ClaimedJob>& jobs, Acknowledged& known) {
    std::vector<Completion> done;
    for (const ClaimedJob& job : jobs)
      done.push_back({job.claim, answer(format("{}/{}", job.claim.job, job.claim.attempt))});
    queue.save({}, done);
    for (const Completion& completion : done) {
      EXPECT_FALSE(known.answers.contains(completion.claim.job)) << "answered twice";
      known.answers[completion.claim.job] = completion.result.body;
    }
  }

  // Submit, claim, checkpoint, complete, cancel, prune.
  void whole_run(Acknowledged& known) {
    auto queue = open_worker();
    std::string a = submit(*queue, 6);
    known.batches.insert(a);
    std::string b = submit(*queue, 4);
    known.batches.insert(b);
    std::vector<ClaimedJob> jobs = queue->claim(4, a, std::nullopt);
    std::vector<Checkpoint> checkpoints;
    for (const ClaimedJob& job : jobs)
      checkpoints.push_back({job.claim, "m", std::string(300, 't')});
    queue->save(checkpoints, {});
    complete(*queue, {jobs[0], jobs[1]}, known);
    queue->release({jobs[2].claim});
    queue->cancel_batch(b);
    known.cancelled.insert(b);
    queue->prune({b});
    known.pruned.insert(b);
    queue->report_progress("{}");
    complete(*queue, queue->claim(9, a, std::nullopt), known);
    complete(*queue, {jobs[3]}, known);
  }

  // A submit slice by slice, and one that is given up half way.
  void sliced_submit(Acknowledged& known) {
    most_held_bytes_ = 0;
    auto queue = open_worker();
    for (bool is_kept : {true, false}) {
      auto writer = queue->new_batch();
      for (uint64_t line = 1; line <= 3; ++line)
        add(*writer, {job(line), {}});
      bool existed = false;
      if (is_kept) known.batches.insert(writer->commit({}, &existed));
    }
    complete(*queue, queue->claim(2, std::nullopt, std::nullopt), known);
  }

  // What must hold whatever happened.
  void expect_sound(const Acknowledged& known) {
    expect_counters_agree(path_);
    Sql sql(path_);
    for (const std::string& id : known.batches) {
      std::string status = sql.one(format("SELECT status FROM batches WHERE id = '{}'", id));
      if (!known.cancelled.contains(id)) {
        EXPECT_EQ(
            sql.one(format(
                "SELECT total = (SELECT count(*) FROM jobs WHERE batch_id = batches.id)"
                " FROM batches WHERE id = '{}'",
                id)),
            "1");
      }
      if (known.pruned.contains(id)) {
        EXPECT_EQ(status, "");
      } else if (known.cancelled.contains(id)) {
        EXPECT_TRUE(status.empty() || status.starts_with("cancel")) << status;
      } else if (!known.cancelled.contains(id)) {
        EXPECT_NE(status, "") << "lost: " << id;
      }
    }
    for (const auto& [job, body] : known.answers) {
      EXPECT_EQ(
          sql.rows(format("SELECT body FROM result WHERE job = {}", job)),
          std::vector<std::string>{body});
    }
    EXPECT_EQ(sql.one("SELECT count(*) FROM result GROUP BY job HAVING count(*) > 1"), "");
  }

  // The next start takes the rest to its end.
  void finish(Acknowledged& known) {
    auto queue = open_worker();
    for (;;) {
      std::vector<ClaimedJob> jobs = queue->claim(9, std::nullopt, std::nullopt);
      if (jobs.empty()) break;
      // A completion that was committed although the process never heard of it is no loss.
      complete(*queue, jobs, known);
    }
    EXPECT_EQ(queue->n_unfinished(std::nullopt), 0U);
    EXPECT_EQ(Sql(path_).one("SELECT count(*) FROM batch WHERE is_hidden = 1"), "0");
  }

  using Run = void (FaultWalk::*)(Acknowledged&);

  // False: the run was over before the n-th operation.
  bool inject(Run run, const Kind& kind, uint64_t n, uint32_t seed) {
    SCOPED_TRACE(format("{} {}, seed {}", kind.name, n, seed));
    path_ = format("{}/{}.db", folder_, ++n_files_);
    FaultVfs vfs;
    vfs.arm(kind.fault, n, seed);
    Acknowledged known;
    std::optional<Error> error = error_of([&] { (this->*run)(known); });
    bool has_fired = vfs.has_fired();
    // An error of the disk ends with 7 or 6, and never as a fault of ours. A fault may also pass
    // without notice, as one in a temporary file or at the very end.
    if (error) {
      EXPECT_TRUE(error->kind() == ErrorKind::storage || error->kind() == ErrorKind::queue)
          << error->what();
      EXPECT_TRUE(has_fired) << error->what();
    }
    // After a failed sync the machine may go down as well.
    vfs.restart(kind.fault == Fault::power_cut || (kind.fault == Fault::sync && seed % 2 == 1));
    if (!known.batches.empty()) expect_sound(known);
    error = error_of([&] { finish(known); });
    EXPECT_FALSE(error.has_value()) << error->what();
    expect_sound(known);
    std::error_code ignored;
    for (const char* end : {"", ".lock", ".submit"})
      std::filesystem::remove(path_ + end, ignored);
    return has_fired;
  }

  void walk(Run run) {
    const char* named = std::getenv("NIGHTSWEEP_FAULTS");
    uint64_t wanted = named != nullptr ? std::strtoull(named, nullptr, 10) : 0;
    std::array<uint64_t, std::size(kKinds)> counts{};
    uint64_t n_faults = 0;
    for (uint32_t seed = 1; seed == 1 || n_faults < wanted; ++seed) {
      for (size_t i = 0; i < std::size(kKinds); ++i) {
        // The short walk goes in strides that meet operations of all sorts.
        bool is_rare = kKinds[i].fault == Fault::open || kKinds[i].fault == Fault::truncate;
        uint64_t stride = wanted > 0 ? 1 : is_rare ? 3 : 19;
        for (uint64_t n = 1; inject(run, kKinds[i], n, seed) && !HasFailure(); n += stride) {
          ++counts[i];
          ++n_faults;
        }
        if (HasFailure()) return;
        EXPECT_GT(counts[i], 0U) << kKinds[i].name;
      }
    }
    std::string text;
    for (size_t i = 0; i < std::size(kKinds); ++i)
      text += format("{}{} {}", i == 0 ? "" : ", ", kKinds[i].name, counts[i]);
    std::printf(
        "%llu faults (%s): nothing lost, nothing twice, integrity ok\n",
        static_cast<unsigned long long>(n_faults), text.c_str());
  }

  int n_files_ = 0;
};

TEST_F(FaultWalk, what_was_acknowledged_survives_a_fault_at_every_operation) {
  walk(&FaultWalk::whole_run);
}

TEST_F(FaultWalk, a_submit_in_slices_is_there_whole_or_not_at_all) {
  walk(&FaultWalk::sliced_submit);
}

// Without the syncs the power cut must be seen: the walk can fail.
TEST_F(FaultWalk, a_connection_that_does_not_sync_is_caught) {
  int n_lost = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    path_ = format("{}/control-{}.db", folder_, seed);
    FaultVfs vfs;
    vfs.arm(Fault::none, 1, seed);
    std::string id;
    {
      auto queue = open();
      queue->connection().run("PRAGMA synchronous = OFF");
      queue->set_paused(true);
    }
    vfs.restart(true);
    std::string is_paused = Sql(path_).one("SELECT is_paused FROM control");
    n_lost += is_paused == "1" ? 0 : 1;
  }
  EXPECT_GT(n_lost, 0);
}

}  // namespace
}  // namespace nightsweep
