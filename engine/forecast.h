// Forecast: what a sweep will cost on a machine, and how long a night's work will take. Pure
// arithmetic; the placement is the engine's own.
//
//   link     weights that a sweep copies into the device's memory / rate of the link
//   disk     weights that it reads / rate of the disk
//   flops    2 x weights x rows / operations a second
//   vram     bytes that operators move in the device's memory: weights, once more what is repacked,
//            keys and values, activations / its rate ("ram" on the CPU)
//   compute  the operators one after the other as they were measured: never less than the two above
//   sweep    the largest of link, disk and compute: each is busy all the time, beside the others
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/gguf.h"
#include "engine/memory_demand.h"
#include "engine/model.h"
#include "engine/placement.h"
#include "engine/rates.h"
#include "kernels/device.h"

namespace nightsweep {

// What stays the same however memory is shared.
struct ForecastModel {
  const GgufModel& gguf;  // must outlive the forecast
  ModelConfig config;
  std::shared_ptr<const DeviceSizes> device;
  KvType kv_type = KvType::f16;
};

struct ForecastBudget {
  uint64_t vram_bytes = 0;  // on a device with memory of its own
  uint64_t ram_bytes = 0;
  uint32_t max_sequences = 0;            // 0: choose the one with most tokens a second
  uint32_t most_sequences = UINT32_MAX;  // that the work has, and the pages that they can fill
  uint32_t most_kv_pages = UINT32_MAX;
  uint32_t context_tokens = 0;
  uint32_t typical_tokens = 512;  // prompt and answer of a request
  std::string source = "auto";    // as in StreamOptions
};

// The rows of one sweep.
struct SweepLoad {
  uint32_t decode_rows = 0;
  double decode_context = 0;  // tokens that such a row attends to, on the average
  uint32_t prefill_rows = 0;
  double prefill_context = 0;
  uint32_t logit_rows = 0;
};

enum class Bound { link, disk, flops, vram };
const char* bound_name(Bound bound, bool shares_host_memory);

struct SweepCost {
  double link_s = 0;
  double disk_s = 0;
  double flops_s = 0;
  double vram_s = 0;
  double compute_s = 0;
  double sweep_s() const;
  Bound bound() const;
};

// Work of equal jobs.
struct NightLoad {
  uint64_t n_jobs = 0;
  uint32_t prompt_tokens = 0;
  uint32_t answer_tokens = 0;
};

struct NightCost {
  uint64_t n_sweeps = 0;
  double fill_s = 0;     // that the first sweep takes longer: it reads all weights from the disk
  double prefill_s = 0;  // sweeps by their rows, as `bench sweep` counts them
  double decode_s = 0;
  double tail_s = 0;    // of that, when fewer sequences run than could
  double finish_s = 0;  // all of it
};

// A machine with a model placed on it.
class Forecast {
 public:
  // Throws Error(device) where the model does not fit the budget, as Engine::open() does.
  Forecast(const ForecastModel& model, const ForecastBudget& budget, const MachineRates& rates);

  const MemoryPlan& plan() const { return plan_; }
  const Placement& placement() const { return placement_; }
  const ModelSlices& slices() const { return slices_; }
  const MemoryDemand& demand() const { return demand_; }
  // Sequences that run at once: as many as were asked for and as keys and values have room for.
  uint32_t n_sequences() const { return n_sequences_; }
  uint64_t kv_bytes_per_token() const { return demand_.kv_page_bytes / kKvPageTokens; }
  uint64_t n_weights() const { return n_weights_; }  // multiplied in a sweep

  SweepCost sweep(const SweepLoad& load) const;
  // Every sequence gives a token, with so many before it.
  SweepCost decode(uint32_t n_sequences, double context) const;
  // Most rows of prompts that fit a step, of prompts so long.
  SweepCost prefill(uint32_t prompt_tokens) const;
  NightCost night(const NightLoad& load) const;
  // Rows of prompts that ride along beside these at no cost, since link or disk take as long; as
  // the engine limits them beside answers (engine/free_rows.h). All there is room for where nothing
  // streams.
  uint32_t free_prompt_rows(const SweepLoad& load) const;
  // MachineRates::link_rate and disk_rate that a sweep needs and nobody has told.
  bool lacks_link_rate() const { return placement_.link_bytes > 0 && rates_.link_rate <= 0; }
  bool lacks_disk_rate() const { return placement_.disk_bytes > 0 && rates_.disk_rate <= 0; }

 private:
  struct Weights {
    QuantType type = QuantType::f32;
    bool is_streamed = false;
    bool is_head = false;
    uint64_t n_weights = 0;
    uint64_t file_bytes = 0;
    uint64_t packed_bytes = 0;
  };
  void count_weights();
  double linear_s(const Weights& weights, uint32_t rows) const;
  double batch_s(const Weights& weights, uint32_t rows) const;
  // What operators of a batch cost however little they have to do, where no other rate contains it.
  double starts_s() const;

  ModelConfig config_;
  std::shared_ptr<const DeviceSizes> device_;
  MachineRates rates_;
  MemoryDemand demand_;
  MemoryPlan plan_;
  ModelSlices slices_;
  Placement placement_;
  std::vector<Weights> weights_;
  uint64_t n_weights_ = 0;
  uint32_t n_sequences_ = 0;
};

// The forecast with the number of sequences that gives most tokens a second when each has
// `typical_tokens` (budget.max_sequences: that number instead).
std::unique_ptr<Forecast> choose_forecast(
    const ForecastModel& model,
    const ForecastBudget& budget,
    const MachineRates& rates);

}  // namespace nightsweep
