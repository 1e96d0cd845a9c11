// A libnvidia-ml.so that knows one GPU, "00000000:3b:00.0". What it tells stands in files of the
// folder FAKE_NVML_FOLDER: energy_mj, power_mw; a file that is not there is not supported.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;

template <typename Number>
int read(const char* name, Number* number) {
  const char* folder = std::getenv("FAKE_NVML_FOLDER");
  std::ifstream file(std::string(folder == nullptr ? "" : folder) + "/" + name);
  return file >> *number ? kSuccess : kNotSupported;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return kSuccess;
}
int nvmlShutdown() {
  return kSuccess;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  static int the_gpu = 0;
  *device = &the_gpu;
  return std::strcmp(address, "00000000:3b:00.0") == 0 ? kSuccess : kNotFound;
}
int nvmlDeviceGetTotalEnergyConsumption(void* /*device*/, unsigned long long* energy) {  // NOLINT
  return read("energy_mj", energy);
}
int nvmlDeviceGetPowerUsage(void* /*device*/, unsigned* power) {
  return read("power_mw", power);
}
}
