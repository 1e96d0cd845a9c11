// Measures what the forecast reckons with: link, disk and operators of this machine, through the
// same Device and FileReader as a sweep. Some seconds in all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model_config.h"
#include "engine/rates.h"
#include "kernels/device.h"

namespace nightsweep {

struct LinkProbe {
  double to_device = 0;    // bytes a second, from page-locked memory
  double from_device = 0;  // of values that are read back
  double pinning_s_per_gib = 0;
  double registered = 0;  // to_device from the page cache, locked in place; 0: refused
  double registering_s_per_gib = 0;
  std::string why_not_registered;
};
// REQUIRES: the device has memory of its own.
LinkProbe probe_link(Device& device);
// Bytes a second of copies as a sweep makes them, for at least `least_s`. `from`: memory of the
// host that the device knows; nobody computes meanwhile.
double probe_copies(Device& device, const std::byte* from, std::span<std::byte> to, double least_s);
// The same from a mapping of a file, up to 256 MiB of it: the registered figures of `found`.
// Throws Error(model) for the file.
void probe_registered(Device& device, const std::string& path, LinkProbe& found);

struct DiskProbe {
  struct Depth {
    uint32_t n_reads = 0;  // in flight, of 1 MiB
    double bytes_per_s = 0;
  };
  std::string source;  // "io_uring O_DIRECT"
  std::vector<Depth> depths;
  double best() const;
};
// Reads for so long a depth, in runs of some MiB all over the file, as a sweep reads slices. A
// drive may be faster for a third of a second than for as long as a sweep lasts. Throws
// Error(model) or Error(storage) as a sweep does.
DiskProbe probe_disk(
    const std::string& path,
    const std::vector<uint32_t>& depths,
    double seconds_a_depth = 0.3);

// Matrices and heads to measure with.
struct ProbeShape {
  uint32_t n_rows = 14336;
  uint32_t n_cols = 4096;
  uint32_t n_heads = 32;
  uint32_t n_kv_heads = 8;
  uint32_t head_dim = 128;
  KvType kv_type = KvType::f16;
  std::vector<QuantType> types = {
      QuantType::q4_k, QuantType::q6_k, QuantType::q8_0, QuantType::f16};
  uint64_t spread_bytes = 0;  // of the matrices of a type; 0: more than any cache holds
};
// The widest matrices of a model, its heads and the types of its matrices.
ProbeShape probe_shape_of(const GgufModel& gguf, const ModelConfig& config, KvType kv_type);

// All of MachineRates but link and disk. The device must be new: this reserves for its own shapes.
MachineRates probe_operators(Device& device, const ProbeShape& shape);

}  // namespace nightsweep
