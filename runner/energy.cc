#include "runner/energy.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace nightsweep {

namespace {

using Clock = std::chrono::steady_clock;

// Nothing, with errno set, where the file cannot be read or holds no number.
std::optional<uint64_t> read_number(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  uint64_t number = 0;
  if (!file || !(file >> number)) return std::nullopt;
  return number;
}

std::string read_word(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

uint64_t WrappingCounter::add(uint64_t value) {
  const std::optional<uint64_t> last = std::exchange(last_, value);
  if (!last) return 0;
  if (value >= *last) return value - *last;
  return range_ >= *last ? value + (range_ - *last) : 0;
}

// Types and names of nvml.h, of which we need so little that the header is not asked for.
class EnergyMeter::Gpu {
 public:
  // Null, with a note, where it cannot be measured.
  static std::unique_ptr<Gpu>
  open(const std::string& library, const std::string& address, std::vector<std::string>& notes) {
    auto gpu = std::make_unique<Gpu>();
    const std::string trouble = gpu->connect(library, address);
    if (trouble.empty()) return gpu;
    notes.push_back("GPU: " + trouble);
    return nullptr;
  }
  Gpu() = default;
  ~Gpu() {
    if (is_initialized_) shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  double joules() {
    constexpr double kMillijoules = 1e-3;
    if (has_counter_) {
      unsigned long long now = 0;  // NOLINT: NVML's type
      if (energy_(device_, &now) == 0)
        joules_ += kMillijoules * static_cast<double>(counter_.add(now));
      return joules_;
    }
    unsigned milliwatts = 0;
    const Clock::time_point now = Clock::now();
    if (power_(device_, &milliwatts) == 0) {
      const std::chrono::duration<double> since = now - last_look_;
      joules_ += kMillijoules * milliwatts * since.count();
    }
    last_look_ = now;
    return joules_;
  }
  const char* description() const {
    return has_counter_ ? "GPU (NVML energy counter)" : "GPU (NVML power, sampled)";
  }

 private:
  using Device = void*;
  static constexpr int kSuccess = 0;

  template <typename Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    return function != nullptr;
  }

  // Empty, or what is in the way.
  std::string connect(const std::string& library, const std::string& address) {
    library_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      return format("{} cannot be loaded (it comes with the NVIDIA driver)", library);
    }
    int (*init)() = nullptr;
    int (*by_address)(const char*, Device*) = nullptr;
    if (!find(init, "nvmlInit_v2") || !find(shutdown_, "nvmlShutdown") ||
        !find(by_address, "nvmlDeviceGetHandleByPciBusId_v2")) {
      return library + " lacks functions that every driver since 2012 has";
    }
    if (const int status = init(); status != kSuccess) {
      return format("NVML does not start (error {}): see nvidia-smi", status);
    }
    is_initialized_ = true;
    if (const int status = by_address(address.c_str(), &device_); status != kSuccess) {
      return format("NVML does not know the GPU at {} (error {})", address, status);
    }
    unsigned long long now = 0;  // NOLINT: NVML's type
    has_counter_ =
        find(energy_, "nvmlDeviceGetTotalEnergyConsumption") && energy_(device_, &now) == kSuccess;
    if (has_counter_) {
      counter_.add(now);
      return "";
    }
    unsigned milliwatts = 0;
    if (!find(power_, "nvmlDeviceGetPowerUsage") || power_(device_, &milliwatts) != kSuccess) {
      return "the driver tells neither its energy nor its power";
    }
    last_look_ = Clock::now();
    return "";
  }

  void* library_ = nullptr;
  bool is_initialized_ = false;
  int (*shutdown_)() = nullptr;
  int (*energy_)(Device, unsigned long long*) = nullptr;  // NOLINT: NVML's type; mJ
  int (*power_)(Device, unsigned*) = nullptr;             // mW
  Device device_ = nullptr;
  bool has_counter_ = false;
  WrappingCounter counter_{0};  // begins again when the driver is loaded
  Clock::time_point last_look_;
  double joules_ = 0;
};

class EnergyMeter::Processor {
 public:
  static std::unique_ptr<Processor> open(
      const std::string& folder,
      std::vector<std::string>& notes) {
    auto processor = std::make_unique<Processor>();
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(folder, missing))
      processor->add_zone(entry.path(), notes);
    std::sort(processor->zones_.begin(), processor->zones_.end(), [](const Zone& a, const Zone& b) {
      return a.file < b.file;
    });
    if (!processor->zones_.empty()) return processor;
    if (notes.empty() || notes.back().rfind("processor", 0) != 0) {
      notes.push_back(format(
          "processor: no RAPL counter under {} (a virtual machine, or the module intel_rapl_msr is "
          "not loaded)",
          folder));
    }
    return nullptr;
  }

  double joules() {
    constexpr double kMicrojoules = 1e-6;
    for (Zone& zone : zones_) {
      if (const auto value = read_number(zone.file))
        joules_ += kMicrojoules * static_cast<double>(zone.counter.add(*value));
    }
    return joules_;
  }
  std::string description() const {
    std::string names;
    for (const Zone& zone : zones_)
      names += (names.empty() ? "" : ", ") + zone.name;
    return format("processor (RAPL: {})", names);
  }

 private:
  struct Zone {
    std::string name;
    std::string file;
    WrappingCounter counter;
  };

  // Packages and their memory. `core` and `uncore` are parts of a package, `psys` holds them all.
  void add_zone(const std::filesystem::path& place, std::vector<std::string>& notes) {
    const std::string name = read_word(place / "name");
    if (place.filename().string().rfind("intel-rapl:", 0) != 0) return;
    if (name.rfind("package-", 0) != 0 && name != "dram") return;
    const std::string file = (place / "energy_uj").string();
    const std::optional<uint64_t> value = read_number(file);
    if (!value) {
      const bool is_forbidden = errno == EACCES || errno == EPERM;
      notes.push_back(format(
          "processor: {} cannot be read ({}){}", file, errno_text(errno),
          is_forbidden ? ": root may; or give the worker's group leave to read it (udev, chgrp and "
                         "chmod g+r)"
                       : ""));
      return;
    }
    Zone zone{
        .name = name,
        .file = file,
        .counter =
            WrappingCounter(read_number((place / "max_energy_range_uj").string()).value_or(0))};
    zone.counter.add(*value);
    zones_.push_back(std::move(zone));
  }

  std::vector<Zone> zones_;
  double joules_ = 0;
};

EnergyMeter::EnergyMeter(const std::string& gpu, const Places& places) {
  if (!gpu.empty()) gpu_ = Gpu::open(places.nvml_library, gpu, notes_);
  processor_ = Processor::open(places.rapl_folder, notes_);
}

EnergyMeter::~EnergyMeter() = default;

std::optional<double> EnergyMeter::joules() {
  if (gpu_ == nullptr && processor_ == nullptr) return std::nullopt;
  return (gpu_ != nullptr ? gpu_->joules() : 0) +
         (processor_ != nullptr ? processor_->joules() : 0);
}

std::string EnergyMeter::description() const {
  std::string text = gpu_ != nullptr ? gpu_->description() : "";
  if (processor_ == nullptr) return text;
  return (text.empty() ? "" : text + " and ") + processor_->description();
}

}  // namespace nightsweep
