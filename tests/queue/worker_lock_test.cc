#include <fcntl.h>
#include <sys/file.h>

#include "queue/queue_fixture.h"

namespace nightsweep {
namespace {

using WorkerLockTest = QueueTest;

TEST_F(WorkerLockTest, a_second_worker_is_refused_with_the_name_of_the_first) {
  auto first = open();
  WorkerInfo info;
  info.host = "nighthost";
  first->become_worker(info);
  auto second = open();
  std::optional<Error> error = error_of([&] { second->become_worker({}); });
  expect_error(error, ErrorKind::queue, "nighthost");
  expect_error(error, ErrorKind::queue, format("pid {}", ::getpid()));
  // The refusal disturbed nobody.
  submit(*second, 1);
  EXPECT_EQ(first->claim(1, std::nullopt, std::nullopt).size(), 1U);
  first.reset();
  second->become_worker({});
}

TEST_F(WorkerLockTest, the_lock_of_a_killed_worker_is_free) {
  in_killed_child([&] { open_worker().release(); });
  open_worker();
}

TEST_F(WorkerLockTest, asking_for_the_worker_tells_who_is_at_work) {
  auto onlooker = open();
  EXPECT_FALSE(onlooker->worker().has_value());
  {
    auto queue = open();
    WorkerInfo self;
    self.pid = 4711;
    self.host = "nighthost";
    self.model = "m.gguf";
    self.device = "cpu";
    self.started_ms = now_ms_ - 5;
    queue->become_worker(self);
    now_ms_ += 10;
    queue->report_progress(R"({"answered":7})");
    for (SqliteQueue* from : {queue.get(), onlooker.get()}) {
      std::optional<WorkerInfo> seen = from->worker();
      ASSERT_TRUE(seen.has_value());
      EXPECT_TRUE(seen->is_alive);
      EXPECT_EQ(seen->pid, 4711);
      EXPECT_EQ(seen->host, "nighthost");
      EXPECT_EQ(seen->model, "m.gguf");
      EXPECT_EQ(seen->device, "cpu");
      EXPECT_EQ(seen->started_ms, now_ms_ - 15);
      EXPECT_EQ(seen->seen_ms, now_ms_);
      EXPECT_EQ(seen->progress, R"({"answered":7})");
    }
    // Asking did not take the lock away.
    expect_error(error_of([&] { open_worker(); }), ErrorKind::queue, "4711");
  }
  EXPECT_FALSE(onlooker->worker()->is_alive);
}

TEST_F(WorkerLockTest, a_worker_starts_while_somebody_asks) {
  { open_worker(); }
  int asking[2];
  ASSERT_EQ(::pipe(asking), 0);
  pid_t child = start_child([&] {
    // An onlooker that is very slow between trying the lock and giving it back.
    int fd = ::open((path_ + ".lock").c_str(), O_RDONLY);
    if (::flock(fd, LOCK_SH) != 0 || ::write(asking[1], "a", 1) != 1) ::_exit(1);
    ::usleep(30'000);
  });
  char byte = 0;
  ASSERT_EQ(::read(asking[0], &byte, 1), 1);
  open_worker();
  wait_for(child);
}

}  // namespace
}  // namespace nightsweep
