// Joules from a made-up /sys/class/powercap and a made-up libnvidia-ml.so.
#include "runner/energy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

constexpr const char* kGpu = "00000000:3b:00.0";

class Energy : public testing::Test {
 protected:
  void SetUp() override { ::setenv("FAKE_NVML_FOLDER", folder_.path("nvml").c_str(), 1); }
  void TearDown() override { ::unsetenv("FAKE_NVML_FOLDER"); }

  void write(const std::string& name, uint64_t number) { write(name, std::to_string(number)); }
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_.path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  void zone(const std::string& place, const std::string& name, uint64_t energy_uj) {
    write("powercap/" + place + "/name", name);
    write("powercap/" + place + "/energy_uj", energy_uj);
    write("powercap/" + place + "/max_energy_range_uj", 10'000'000);
  }
  EnergyMeter::Places places(const std::string& nvml = FAKE_NVML) {
    return {.rapl_folder = folder_.path("powercap"), .nvml_library = nvml};
  }

  TemporaryFolder folder_;
};

TEST_F(Energy, of_packages_and_their_memory_is_summed) {
  zone("intel-rapl:0", "package-0", 1'000'000);
  zone("intel-rapl:0:0", "core", 500'000);
  zone("intel-rapl:0:1", "dram", 2'000'000);
  zone("intel-rapl:1", "package-1", 3'000'000);
  zone("intel-rapl:2", "psys", 9'000'000);
  zone("intel-rapl-mmio:0", "package-0", 1'000'000);  // the first again, by another way
  EnergyMeter meter("", places());
  EXPECT_EQ(meter.joules(), 0.0);
  zone("intel-rapl:0", "package-0", 1'500'000);
  zone("intel-rapl:0:0", "core", 900'000);
  zone("intel-rapl:0:1", "dram", 2'250'000);
  zone("intel-rapl:1", "package-1", 5'000'000);
  zone("intel-rapl:2", "psys", 9'900'000);
  zone("intel-rapl-mmio:0", "package-0", 1'500'000);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 2.75);
  EXPECT_TRUE(meter.notes().empty());
  EXPECT_NE(meter.description().find("package-1"), std::string::npos) << meter.description();
}

TEST_F(Energy, goes_on_when_a_counter_wraps_around) {
  zone("intel-rapl:0", "package-0", 9'000'000);
  EnergyMeter meter("", places());
  zone("intel-rapl:0", "package-0", 500'000);  // 1 J to the end, half a one behind it
  EXPECT_DOUBLE_EQ(meter.joules().value(), 1.5);
  WrappingCounter unknown(0);
  unknown.add(100);
  EXPECT_EQ(unknown.add(50), 0U);
  EXPECT_EQ(unknown.add(70), 20U);
}

TEST_F(Energy, that_may_not_be_read_is_absent_and_said) {
  EnergyMeter nothing("", places());
  EXPECT_EQ(nothing.joules(), std::nullopt);
  EXPECT_EQ(nothing.description(), "");
  ASSERT_EQ(nothing.notes().size(), 1U);
  EXPECT_NE(nothing.notes()[0].find("no RAPL counter"), std::string::npos);

  zone("intel-rapl:0", "package-0", 1);
  std::filesystem::remove(folder_.path("powercap/intel-rapl:0/energy_uj"));
  // Unreadable for root as well: a folder in its place.
  std::filesystem::create_directories(folder_.path("powercap/intel-rapl:0/energy_uj"));
  EnergyMeter unreadable("", places());
  EXPECT_EQ(unreadable.joules(), std::nullopt);
  ASSERT_EQ(unreadable.notes().size(), 1U);
  EXPECT_NE(unreadable.notes()[0].find("energy_uj cannot be read"), std::string::npos)
      << unreadable.notes()[0];
}

TEST_F(Energy, of_a_gpu_comes_from_its_counter) {
  write("nvml/energy_mj", 5'000);
  write("nvml/power_mw", 300'000);
  EnergyMeter meter(kGpu, places());
  EXPECT_EQ(meter.joules(), 0.0);
  write("nvml/energy_mj", 6'500);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 1.5);
  EXPECT_NE(meter.description().find("energy counter"), std::string::npos);
  zone("intel-rapl:0", "package-0", 0);
  EnergyMeter both(kGpu, places());
  zone("intel-rapl:0", "package-0", 1'000'000);
  write("nvml/energy_mj", 7'500);
  EXPECT_DOUBLE_EQ(both.joules().value(), 2);
}

TEST_F(Energy, of_a_gpu_without_a_counter_is_its_power_over_time) {
  write("nvml/power_mw", 250'000);
  EnergyMeter meter(kGpu, places());
  EXPECT_NE(meter.description().find("power, sampled"), std::string::npos);
  meter.joules();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_GE(meter.joules().value(), 250 * 0.020);
}

TEST_F(Energy, of_a_gpu_that_nvml_does_not_know_is_absent_and_said) {
  const auto note = [&](const std::string& gpu, const std::string& library) {
    EnergyMeter meter(gpu, places(library));
    EXPECT_EQ(meter.joules(), std::nullopt);
    return meter.notes().front();
  };
  EXPECT_NE(note("00000000:01:00.0", FAKE_NVML).find("does not know the GPU"), std::string::npos);
  EXPECT_NE(note(kGpu, "libno-such-nvml.so.1").find("cannot be loaded"), std::string::npos);
  EXPECT_NE(note(kGpu, FAKE_NVML).find("neither its energy nor its power"), std::string::npos);
}

}  // namespace
}  // namespace nightsweep
