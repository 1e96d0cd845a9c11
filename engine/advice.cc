#include "engine/advice.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace nightsweep {

namespace {

constexpr double kWorthIt = 1.05;

struct Variant {
  std::string change;
  ForecastModel model;
  ForecastBudget budget;
  MachineRates rates;
};

double tokens_per_s(const Forecast& forecast, const std::optional<NightLoad>& night) {
  if (night) return night_tokens_per_s(*night, forecast.night(*night));
  const uint32_t n = forecast.n_sequences();
  return n / forecast.decode(n, forecast.demand().typical_tokens).sweep_s();
}

}  // namespace

double night_tokens_per_s(const NightLoad& load, const NightCost& cost) {
  return static_cast<double>(load.n_jobs) * load.answer_tokens / cost.finish_s;
}

std::vector<Advice> find_advice(
    const ForecastModel& model,
    const ForecastBudget& budget,
    const MachineRates& rates,
    const std::optional<NightLoad>& night) {
  const auto today = choose_forecast(model, budget, rates);
  const bool is_host = model.device->shares_host_memory();
  std::vector<Variant> variants;
  const auto vary = [&](std::string change) -> Variant& {
    variants.push_back({std::move(change), model, budget, rates});
    return variants.back();
  };
  if (today->placement().disk_bytes > 0) {
    vary("16 GiB more RAM").budget.ram_bytes += 16 * kGiB;
    vary("a disk twice as fast").rates.disk_rate *= 2;
  }
  if (!is_host && today->placement().link_bytes > 0) {
    vary("8 GiB more VRAM").budget.vram_bytes += 8 * kGiB;
    vary("a link twice as fast (PCIe x16 in place of x8, or the next generation)")
        .rates.link_rate *= 2;
  }
  if (model.kv_type == KvType::f16) vary("--kv q8_0").model.kv_type = KvType::q8_0;
  if (budget.max_sequences > 0) {
    vary("more sequences in a sweep").budget.max_sequences = 0;
  }

  const double tokens_today = tokens_per_s(*today, night);
  std::vector<Advice> list;
  for (const Variant& variant : variants) {
    const auto forecast = choose_forecast(variant.model, variant.budget, variant.rates);
    // What has no rate would count as free.
    if (forecast->lacks_link_rate() || forecast->lacks_disk_rate()) continue;
    Advice advice{
        .change = variant.change,
        .factor = tokens_per_s(*forecast, night) / tokens_today,
        .n_sequences = forecast->n_sequences()};
    if (budget.max_sequences > 0 && variant.budget.max_sequences == 0) {
      advice.change = format("--batch {}", advice.n_sequences);
    }
    if (advice.factor >= kWorthIt) list.push_back(std::move(advice));
  }
  std::ranges::stable_sort(list, std::greater<>(), &Advice::factor);
  return list;
}

}  // namespace nightsweep
