// What `plan` and `bench` have in common: a model by file or by shape, budgets, and the rates of a
// machine from a file, options, data sheets or measurement.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/forecast.h"
#include "engine/rates.h"
#include "runner/options.h"

namespace nightsweep {

// --shape, --rates, --gpu, --vram-rate, --flops
std::vector<OptionSpec> planning_options();

// Vocabulary and weights are not looked at.
struct PlannedModel {
  std::string name;  // file or shape
  std::string file;  // empty: there is none
  std::shared_ptr<const GgufModel> gguf;
  ModelConfig config;
};
// --model or --shape. Throws Error(usage) for both or none, Error(model).
PlannedModel open_planned_model(const CommonOptions& options, const Arguments& arguments);

// The device to plan for: this machine's, or one that is told by its figures alone.
struct PlannedDevice {
  bool is_gpu = false;
  bool is_here = false;  // it can be opened and measured
  std::optional<GpuSheet> sheet;
};
PlannedDevice choose_planned_device(const CommonOptions& options, const Arguments& arguments);

// Budgets and context. Throws Error(usage) where a budget is neither given nor to be found here.
ForecastBudget
budget_of(const CommonOptions& options, const PlannedDevice& device, const ModelConfig& config);

// Rates as far as they are known without a look at what the plan needs; each has its origin.
MachineRates rates_of(
    const CommonOptions& options,
    const Arguments& arguments,
    const PlannedDevice& device,
    const PlannedModel& model);

// The best forecast, and the rates for it: a rate that the plan needs and nobody has told is
// measured, where the device and the file are here; else Error(usage) says which and how to
// measure it.
std::unique_ptr<Forecast> forecast_with_rates(
    const ForecastModel& model,
    const ForecastBudget& budget,
    const CommonOptions& options,
    const PlannedDevice& device,
    const std::string& model_file,
    MachineRates& rates);

}  // namespace nightsweep
