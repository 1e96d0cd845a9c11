#include "runner/owner.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runner/gate.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

class Owner : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_.path(name)).parent_path());
    std::ofstream(folder_.path(name)) << text << "\n";
  }
  TemporaryFolder folder_;
};

TEST_F(Owner, a_laptop_on_battery_waits) {
  std::string power = folder_.path("power");
  EXPECT_FALSE(is_on_battery(power)) << "a desktop has no such folder";
  write("power/BAT0/type", "Battery");
  write("power/BAT0/status", "Charging");
  write("power/AC/type", "Mains");
  write("power/AC/online", "1");
  EXPECT_FALSE(is_on_battery(power));
  write("power/AC/online", "0");
  write("power/BAT0/status", "Discharging");
  EXPECT_TRUE(is_on_battery(power));
  OwnerOptions options;
  options.power_folder = power;
  EXPECT_EQ(OwnerWatch(options).wants_machine(), "on battery power");
  options.yields_to_battery = false;
  EXPECT_EQ(OwnerWatch(options).wants_machine(), std::nullopt);
}

TEST_F(Owner, the_battery_of_a_mouse_is_no_reason) {
  write("power/hid/type", "Battery");
  write("power/hid/scope", "Device");
  write("power/hid/status", "Discharging");
  EXPECT_FALSE(is_on_battery(folder_.path("power")));
}

TEST_F(Owner, a_stop_file_is_a_reason_while_it_is_there) {
  OwnerOptions options;
  options.power_folder = folder_.path("none");
  options.stop_file = folder_.path("stop");
  OwnerWatch watch(options);
  EXPECT_EQ(watch.wants_machine(), std::nullopt);
  write("stop", "");
  EXPECT_NE(watch.wants_machine().value_or("").find("stop file"), std::string::npos);
  std::filesystem::remove(options.stop_file);
  EXPECT_EQ(watch.wants_machine(), std::nullopt);
}

// As drivers 535 and 570 print it.
constexpr const char* kTable =
    "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command \n"
    "# Idx           #    C/G      %      %      %      %      %      %     MB     MB    name \n"
    "    0       1234     C     98     40      -      -      -      -  20480      0    nightsweep\n"
    "    0       2222     G      1      0      -      -      -      -     90      0    Xorg\n";

TEST_F(Owner, another_process_on_the_gpu_is_seen_by_time_or_memory) {
  std::string table = kTable;
  EXPECT_EQ(find_gpu_user(table, 1234), std::nullopt) << "a desktop's own use is no reason";
  EXPECT_EQ(
      find_gpu_user(table + "    0 3333 G 60 20 - - - - 100 0 game\n", 1234), "game (pid 3333)");
  EXPECT_EQ(
      find_gpu_user(table + "    0 4444 C - - - - - - 6000 0 python\n", 1234), "python (pid 4444)");
  EXPECT_EQ(find_gpu_user("", 1), std::nullopt);
  EXPECT_EQ(find_gpu_user("# gpu pid\n# Idx #\n    0 - - - - -\n", 1), std::nullopt);
}

TEST_F(Owner, the_gpu_is_asked_through_its_own_tool) {
  write("table", std::string(kTable) + "    0 3333 G 60 20 - - - - 100 0 game");
  OwnerOptions options;
  options.power_folder = folder_.path("none");
  options.yields_to_gpu_users = true;
  options.gpu_command = {"cat", folder_.path("table")};
  EXPECT_EQ(OwnerWatch(options).wants_machine(), "nightsweep (pid 1234) uses the GPU")
      << "another one's worker";
  options.gpu_command = {"false"};
  EXPECT_EQ(OwnerWatch(options).wants_machine(), std::nullopt);
  options.gpu_command = {"/no/such/tool"};
  EXPECT_EQ(OwnerWatch(options).wants_machine(), std::nullopt);
}

TEST_F(Owner, the_gate_says_what_is_waited_for) {
  OwnerOptions options;
  options.power_folder = folder_.path("none");
  options.stop_file = folder_.path("stop");
  Gate gate(RunWindows::parse({"22:00-07:00 UTC"}, "--window"), options);
  constexpr int64_t kNoon = 1'798'459'200'000;  // 2026-12-28 12:00 UTC
  constexpr int64_t kHourMs = 3'600'000;
  EXPECT_EQ(gate.closed({}, kNoon), "window opens 22:00");
  EXPECT_EQ(gate.closed({}, kNoon + 10 * kHourMs), std::nullopt);
  EXPECT_EQ(gate.closed({.run_now_until_ms = kNoon + 1}, kNoon), std::nullopt);
  EXPECT_EQ(gate.closed({.run_now_until_ms = kNoon}, kNoon), "window opens 22:00");
  EXPECT_NE(gate.closed({.is_paused = true, .run_now_until_ms = kNoon + 1}, kNoon), std::nullopt)
      << "run-now is about windows alone";
  write("stop", "");
  EXPECT_NE(gate.closed({}, kNoon + 10 * kHourMs), std::nullopt);
}

// A suspend looks to the worker like a look that comes hours after the one before; a clock that was
// set back, like one that comes before it.
TEST_F(Owner, the_gate_goes_by_the_clock_of_each_look) {
  OwnerOptions options;
  options.power_folder = folder_.path("none");
  Gate gate(RunWindows::parse({"22:00-07:00 UTC"}, "--window"), options);
  constexpr int64_t kHourMs = 3'600'000;
  constexpr int64_t kEvening = 1'798'459'200'000 + 11 * kHourMs;  // 2026-12-28 23:00 UTC
  EXPECT_EQ(gate.closed({}, kEvening), std::nullopt);
  EXPECT_EQ(gate.closed({}, kEvening + 12 * kHourMs), "window opens 22:00") << "slept to 11:00";
  EXPECT_EQ(gate.closed({}, kEvening + 26 * kHourMs), std::nullopt) << "slept to the next night";
  EXPECT_EQ(gate.closed({}, kEvening - 2 * kHourMs), "window opens 22:00") << "set back to 21:00";
  EXPECT_EQ(gate.closed({}, kEvening), std::nullopt);
  Control until_midnight{.run_now_until_ms = kEvening + kHourMs};
  EXPECT_EQ(gate.closed(until_midnight, kEvening + 12 * kHourMs), "window opens 22:00")
      << "run-now ends in a suspend too";
}

}  // namespace
}  // namespace nightsweep
