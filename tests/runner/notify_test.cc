// sd_notify against a real socket.
#include "runner/notify.h"

#include <gtest/gtest.h>

#include "support/notify_socket.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

TEST(Notify, messages_arrive_at_the_socket) {
  TemporaryFolder folder;
  NotifySocket socket(folder.path("notify"));
  ServiceNotifier notifier(folder.path("notify"), 60'000'000);
  notifier.ready();
  notifier.status("one");
  notifier.status("one");
  notifier.status("two");
  notifier.alive();
  notifier.alive();  // too soon for another
  notifier.expect_silence(600);
  notifier.end_silence();
  notifier.stopping();
  EXPECT_EQ(
      socket.received(),
      (std::vector<std::string>{
          "READY=1", "STATUS=one", "STATUS=two", "WATCHDOG=1", "EXTEND_TIMEOUT_USEC=600000000",
          "WATCHDOG_USEC=600000000", "WATCHDOG_USEC=60000000", "WATCHDOG=1", "STOPPING=1"}));
}

TEST(Notify, an_abstract_socket_will_do) {
  std::string name = "@nightsweep-test-" + std::to_string(::getpid());
  NotifySocket socket(name);
  ServiceNotifier(name, 0).ready();
  EXPECT_EQ(socket.received(), std::vector<std::string>{"READY=1"});
}

TEST(Notify, nobody_listens_and_nothing_happens) {
  ServiceNotifier("", 1).ready();
  ServiceNotifier("/no/such/socket", 1).alive();
  ServiceNotifier(std::string(500, 'x'), 1).stopping();
}

}  // namespace
}  // namespace nightsweep
