// A disk that is really full: a small file system of the test's own, in a mount namespace of its
// own.

#include <sched.h>
#include <sys/mount.h>

#include <fstream>
#include <map>

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

constexpr int kCannotMount = 77;

class FullDisk : public QueueTest {
 protected:
  void mount_small() {
    uid_t uid = ::getuid();
    gid_t gid = ::getgid();
    int flags = CLONE_NEWNS | (uid == 0 ? 0 : CLONE_NEWUSER);
    if (::unshare(flags) != 0) ::_exit(kCannotMount);
    if (uid != 0) {
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/uid_map") << format("0 {} 1", uid);
      std::ofstream("/proc/self/gid_map") << format("0 {} 1", gid);
    }
    // Nothing of it is seen outside.
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=1m") != 0) ::_exit(kCannotMount);
  }
  void require(bool condition, const char* what) {
    if (!condition) throw std::runtime_error(what);
  }
};

TEST_F(FullDisk, keeps_what_was_acknowledged_and_goes_on_when_there_is_room) {
  pid_t child = start_child([&] {
    mount_small();
    std::vector<std::string> batches;
    std::map<int64_t, std::string> answers;
    std::optional<Error> error;
    {
      auto queue = open_worker();
      batches.push_back(submit(*queue, 50));
      std::vector<ClaimedJob> jobs = queue->claim(50, std::nullopt, std::nullopt);
      size_t n_done = 0;
      error = error_of([&] {
        for (; n_done < jobs.size(); ++n_done) {
          NewResult result = answer(std::string(40'000, 'x'));
          queue->save({}, {{jobs[n_done].claim, result}});
          answers[jobs[n_done].claim.job] = result.body;
        }
      });
      require(error && error->kind() == ErrorKind::storage, "a full disk is an error of storage");
      require(std::string(error->what()).find("disk is full") != std::string::npos, "it says so");
      require(!answers.empty() && answers.size() < 50, "some fitted");
      require(error_of([&] { submit(*queue, 3000); }).has_value(), "no room for a submit");
    }
    expect_counters_agree(path_);
    require(!HasFailure(), "counters");
    require(::mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT, "size=64m") == 0, "more room");
    auto queue = open_worker();
    require(queue->batches(99).size() == 1, "the refused batch is not there");
    for (const auto& [job, body] : answers) {
      require(
          Sql(path_).rows(format("SELECT body FROM result WHERE job = {}", job)) ==
              std::vector<std::string>{body},
          "an answer is lost");
    }
    for (;;) {
      std::vector<ClaimedJob> jobs = queue->claim(9, std::nullopt, std::nullopt);
      if (jobs.empty()) break;
      for (const ClaimedJob& job : jobs)
        require(!answers.contains(job.claim.job), "answered twice");
      queue->save({}, completions(jobs));
    }
    require(queue->batch(batches[0])->counts.completed == 50, "all are answered");
    expect_counters_agree(path_);
    require(!HasFailure(), "counters");
  });
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotMount) {
    GTEST_SKIP() << "SKIPPED: no file system may be mounted here";
  }
  EXPECT_TRUE(WIFSIGNALED(status)) << "see the child's message above";
}

}  // namespace
}  // namespace nightsweep
