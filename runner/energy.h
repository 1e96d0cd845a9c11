// EnergyMeter: joules that the machine has used, from the counters that it has.
//
//   GPU         NVML, loaded at run time: its energy counter (Volta and later), else its power now,
//               taken as the mean since the last look
//   processor   RAPL: /sys/class/powercap/intel-rapl:N (package-N, AMD's too) and their `dram`
//   zones
//
// What cannot be read is absent: notes() says what, why, and what to do.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nightsweep {

// One counter of microjoules that wraps around.
class WrappingCounter {
 public:
  // `range`: the value behind which it begins at 0 again; 0: unknown, a wrap then adds nothing.
  explicit WrappingCounter(uint64_t range) : range_(range) {}
  // What was added since the last value; the first adds nothing.
  uint64_t add(uint64_t value);

 private:
  uint64_t range_;
  std::optional<uint64_t> last_;
};

class EnergyMeter {
 public:
  struct Places {
    std::string rapl_folder = "/sys/class/powercap";
    std::string nvml_library = "libnvidia-ml.so.1";
  };

  // `gpu`: its address on the PCI bus, "00000000:3b:00.0"; empty: no GPU is at work.
  explicit EnergyMeter(const std::string& gpu, const Places& places);
  explicit EnergyMeter(const std::string& gpu) : EnergyMeter(gpu, Places{}) {}
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  // Since the meter was made, rising; nullopt: nothing can be measured. Takes microseconds for a
  // processor, 3 to 5 ms for an H200.
  std::optional<double> joules();
  // "GPU (NVML energy counter) and processor (RAPL: package-0, dram)"; empty: nothing.
  std::string description() const;
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  class Gpu;
  class Processor;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<Processor> processor_;
  std::vector<std::string> notes_;
};

}  // namespace nightsweep
