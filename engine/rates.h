// MachineRates: how fast a machine moves and multiplies weights. Measured by `bench links`
// (engine/machine_probe.h), kept in a file, or given; what the forecast reckons with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "kernels/quant.h"

namespace nightsweep {

// A linear operator over weights of one type, at a number of rows of input.
struct LinearRate {
  uint32_t rows = 0;
  double weights_per_s = 0;
};

struct MachineRates {
  std::string device;      // for people
  double link_rate = 0;    // bytes a second from page-locked memory into the device's; 0: not known
  double disk_rate = 0;    // bytes a second into the host's memory
  double memory_rate = 0;  // bytes a second that operators read from the device's memory
  double flops = 0;        // operations a second of linear operators at many rows
  double repack_rate = 0;  // file bytes a second, of what streams; 0: half of memory_rate
  double attention_rate = 0;   // bytes of KV a second, one row a sequence; 0: memory_rate
  double attention_flops = 0;  // operations a second, many rows a sequence; 0: flops
  double operator_s = 0;       // what an operator costs that has nothing to do
  double attention_s = 0;      // the same of attention: one row, a page; 0: operator_s
  // By type, rows rising. Empty: memory_rate and flops decide.
  std::map<QuantType, std::vector<LinearRate>> linear;
  // The same for weights in file layout, where operators read it (the CPU).
  std::map<QuantType, std::vector<LinearRate>> linear_streamed;
  // Where each figure is from: ("link", "measured on ...").
  std::vector<std::pair<std::string, std::string>> origins;

  const std::string* origin_of(const std::string& name) const;
  void set_origin(const std::string& name, std::string origin);
};

// Data sheets, for a GPU that is not here: memory bytes a second, dense half-precision operations a
// second with 32-bit sums, and memory.
struct GpuSheet {
  const char* name;  // "rtx-3090"
  uint64_t memory_bytes;
  double memory_rate;
  double flops;
};
// Null for a name that is not known.
const GpuSheet* find_gpu_sheet(const std::string& name);
std::string known_gpu_sheets();
// What of a data sheet's figures the operators of this program reach on an H200.
MachineRates rates_of_sheet(const GpuSheet& sheet);

// As a rates file has it.
Json rates_json(const MachineRates& rates);
// `name` stands in messages. Throws Error(usage) that names the member; unknown ones are ignored.
MachineRates parse_rates(const std::string& text, const std::string& name);

}  // namespace nightsweep
