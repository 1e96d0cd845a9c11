// What `plan` says of a forecast: a table for people, or JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/advice.h"
#include "engine/forecast.h"

namespace nightsweep {

struct PlanReport {
  std::string model_name;
  KvType kv_type = KvType::f16;
  bool is_gpu = false;
  ForecastBudget budget;
  MachineRates rates;
  uint32_t engine_sequences = 0;  // what the engine would take without --batch
  double context = 0;             // tokens of a sequence in the sweep that is shown
  std::optional<NightLoad> night;
  std::vector<Advice> advice;
};

std::string plan_text(const Forecast& forecast, const PlanReport& report);
Json plan_json(const Forecast& forecast, const PlanReport& report);

// One letter a slice of the first layers, as they come in a sweep. V: the GPU's memory (on the CPU
// M: memory), R: RAM, D: disk.
std::string depth_text(const Forecast& forecast, bool is_gpu);

}  // namespace nightsweep
