#include "engine/forecast.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/free_rows.h"
#include "engine/slice_views.h"

namespace nightsweep {

namespace {

// Operators of a layer that round the input of a matrix: two norms, the gate, and what attention
// gives. Matrices that were measured were so with this rounding and with their own start.
constexpr uint32_t kRoundingOperatorsOfALayer = 4;

// Seconds a weight at `rows`, between the measured ones in a straight line; beyond the last in
// proportion to the rows.
double seconds_a_weight(const std::vector<LinearRate>& curve, uint32_t rows) {
  if (rows <= curve.front().rows) return 1 / curve.front().weights_per_s;
  for (size_t i = 1; i < curve.size(); ++i) {
    if (rows > curve[i].rows) continue;
    const double part = static_cast<double>(rows - curve[i - 1].rows) /
                        static_cast<double>(curve[i].rows - curve[i - 1].rows);
    return (1 - part) / curve[i - 1].weights_per_s + part / curve[i].weights_per_s;
  }
  return static_cast<double>(rows) / curve.back().rows / curve.back().weights_per_s;
}

// What operators between the matrices read and write of a row in a sweep: the residual stream ten
// times a layer (norms, rounding, sums, q and what attention gives), gate and up twice each.
double activation_bytes_a_row(const ModelConfig& config) {
  return config.n_layers * sizeof(float) * (10.0 * config.dim + 4.0 * config.ff_dim);
}

double over(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

}  // namespace

const char* bound_name(Bound bound, bool shares_host_memory) {
  switch (bound) {
    case Bound::link:
      return "link";
    case Bound::disk:
      return "disk";
    case Bound::flops:
      return "flops";
    case Bound::vram:
      break;
  }
  return shares_host_memory ? "ram" : "vram";
}

double SweepCost::sweep_s() const {
  return std::max({link_s, disk_s, compute_s});
}

Bound SweepCost::bound() const {
  if (link_s >= disk_s && link_s >= compute_s && link_s > 0) return Bound::link;
  if (disk_s >= compute_s && disk_s > 0) return Bound::disk;
  return flops_s >= vram_s ? Bound::flops : Bound::vram;
}

Forecast::Forecast(
    const ForecastModel& model,
    const ForecastBudget& budget,
    const MachineRates& rates)
    : config_(model.config), device_(model.device), rates_(rates) {
  const KvShape kv{
      .type = model.kv_type, .n_kv_heads = config_.n_kv_heads, .head_dim = config_.head_dim};
  demand_ = memory_demand(model.gguf, config_, *device_, kv);
  demand_.context_tokens = budget.context_tokens;
  demand_.typical_tokens = std::min(budget.typical_tokens, budget.context_tokens);
  demand_.max_sequences = budget.max_sequences;
  demand_.most_kv_pages = budget.most_kv_pages;
  const bool is_host = device_->shares_host_memory();
  demand_.budget_bytes = is_host ? budget.ram_bytes : budget.vram_bytes;
  plan_ = is_host ? plan_memory(demand_, config_) : plan_device_memory(demand_, config_);
  slices_ = Model::cut(model.gguf, config_, plan_.max_slice_bytes);
  placement_ = place_slices(
      slices_.plan, *device_, plan_,
      ram_for_streams(plan_, budget.ram_bytes, demand_.embedding_bytes), budget.source);
  const uint32_t pages = std::max(1U, KvCache::pages_for_request(demand_.typical_tokens));
  n_sequences_ = std::clamp(
      plan_.n_kv_pages / pages, 1U, std::min(plan_.max_sequences, budget.most_sequences));
  count_weights();
}

void Forecast::count_weights() {
  for (size_t i = 0; i < slices_.plan.slices.size(); ++i) {
    for (const WeightExtent& extent : slices_.plan.slices[i].extents) {
      const bool is_streamed = placement_.tiers[i] != Tier::resident;
      const auto type = static_cast<QuantType>(extent.tensor->ggml_type);
      // The last group is the head, and its rows are those whose logits are wanted.
      const bool is_head = extent.tensor == slices_.plan.slices.back().extents.back().tensor;
      auto found = std::ranges::find_if(weights_, [&](const Weights& known) {
        return known.type == type && known.is_streamed == is_streamed && known.is_head == is_head;
      });
      if (found == weights_.end()) {
        weights_.push_back({.type = type, .is_streamed = is_streamed, .is_head = is_head});
        found = weights_.end() - 1;
      }
      const uint64_t n_weights = extent.n_rows * extent.tensor->dims[0];
      found->n_weights += n_weights;
      found->file_bytes += extent.size_bytes;
      found->packed_bytes += packed_extent_bytes(extent, *device_);
      n_weights_ += n_weights;
    }
  }
}

double Forecast::starts_s() const {
  // Rope and store in one, and attention.
  const double attention_s = rates_.attention_s > 0 ? rates_.attention_s : rates_.operator_s;
  const double found_s = config_.n_layers * (rates_.operator_s + attention_s);
  if (!rates_.linear.empty()) return found_s;
  return found_s + rates_.operator_s * (kRoundingOperatorsOfALayer * config_.n_layers +
                                        static_cast<double>(slices_.plan.slices.size()));
}

// All rows at once, or batch by batch.
double Forecast::linear_s(const Weights& weights, uint32_t rows) const {
  const uint32_t rows_at_once = plan_.limits.rows_at_once();
  const uint32_t rest = rows % rows_at_once;
  const uint32_t n_whole = rows / rows_at_once;
  return (n_whole > 0 ? n_whole * batch_s(weights, rows_at_once) : 0) +
         (rest > 0 ? batch_s(weights, rest) : 0);
}

double Forecast::batch_s(const Weights& weights, uint32_t rows) const {
  const bool is_in_file_layout = weights.is_streamed && device_->shares_host_memory();
  const auto n_weights = static_cast<double>(weights.n_weights);
  for (const auto* curves : {&rates_.linear_streamed, &rates_.linear}) {
    if (curves == &rates_.linear_streamed && !is_in_file_layout) continue;
    const auto curve = curves->find(weights.type);
    if (curve != curves->end()) return n_weights * seconds_a_weight(curve->second, rows);
  }
  // Not measured: read, then multiplied. On an H200 that is within a tenth of what is measured.
  return over(static_cast<double>(weights.packed_bytes), rates_.memory_rate) +
         over(2 * n_weights * rows, rates_.flops);
}

SweepCost Forecast::sweep(const SweepLoad& load) const {
  SweepCost cost;
  cost.link_s = over(static_cast<double>(placement_.link_bytes), rates_.link_rate);
  cost.disk_s = over(static_cast<double>(placement_.disk_bytes), rates_.disk_rate);
  const uint32_t rows = load.decode_rows + load.prefill_rows;
  const bool is_host = device_->shares_host_memory();
  const uint32_t n_batches =
      std::max(1U, (rows + plan_.limits.rows_at_once() - 1) / plan_.limits.rows_at_once());
  const double repack_rate = rates_.repack_rate > 0 ? rates_.repack_rate : rates_.memory_rate / 2;
  for (const Weights& weights : weights_) {
    const uint32_t n = weights.is_head ? load.logit_rows : rows;
    const auto file_bytes = static_cast<double>(weights.file_bytes);
    if (weights.is_streamed && !is_host) {
      cost.compute_s += over(file_bytes, repack_rate);
      cost.vram_s += over(2 * file_bytes, rates_.memory_rate);
    }
    if (n == 0) continue;
    cost.compute_s += linear_s(weights, n);
    const uint32_t n_times = weights.is_head ? 1 : n_batches;
    cost.vram_s += over(n_times * static_cast<double>(weights.packed_bytes), rates_.memory_rate);
    cost.flops_s += over(2.0 * static_cast<double>(weights.n_weights) * n, rates_.flops);
  }
  const auto kv_bytes = static_cast<double>(kv_bytes_per_token());
  const double decode_kv_bytes = kv_bytes * load.decode_rows * load.decode_context;
  const double attention_rate =
      rates_.attention_rate > 0 ? rates_.attention_rate : rates_.memory_rate;
  const double attention_flops = rates_.attention_flops > 0 ? rates_.attention_flops : rates_.flops;
  // Two products a token that is attended to and value of a query.
  const double flops_a_pair = 4.0 * config_.n_layers * config_.n_heads * config_.head_dim;
  const double prefill_attention_flops = flops_a_pair * load.prefill_rows * load.prefill_context;
  const double activation_bytes = activation_bytes_a_row(config_) * rows;
  cost.vram_s += over(decode_kv_bytes + activation_bytes, rates_.memory_rate);
  cost.flops_s += over(prefill_attention_flops, rates_.flops);
  cost.compute_s += over(activation_bytes, rates_.memory_rate);
  cost.compute_s += over(decode_kv_bytes, attention_rate);
  cost.compute_s += over(prefill_attention_flops, attention_flops);
  cost.compute_s += n_batches * starts_s();
  cost.compute_s = std::max({cost.compute_s, cost.flops_s, cost.vram_s});
  return cost;
}

SweepCost Forecast::decode(uint32_t n_sequences, double context) const {
  return sweep({.decode_rows = n_sequences, .decode_context = context, .logit_rows = n_sequences});
}

SweepCost Forecast::prefill(uint32_t prompt_tokens) const {
  const uint32_t rows = plan_.limits.max_rows;
  return sweep(
      {.prefill_rows = rows,
       .prefill_context = prompt_tokens / 2.0,
       .logit_rows = std::max(1U, rows / std::max(1U, prompt_tokens))});
}

uint32_t Forecast::free_prompt_rows(const SweepLoad& load) const {
  uint32_t most = plan_.limits.max_rows - std::min(plan_.limits.max_rows, load.decode_rows);
  const SweepCost cost = sweep(load);
  const double traffic_s = std::max(cost.link_s, cost.disk_s);
  if (device_->shares_host_memory() || traffic_s <= 0) return most;
  uint32_t least = std::min(most, FreeRows::kLeast);
  while (least < most) {
    SweepLoad more = load;
    more.prefill_rows = least + (most - least + 1) / 2;
    if (sweep(more).compute_s <= traffic_s) {
      least = more.prefill_rows;
    } else {
      most = more.prefill_rows - 1;
    }
  }
  return least;
}

std::unique_ptr<Forecast> choose_forecast(
    const ForecastModel& model,
    const ForecastBudget& budget,
    const MachineRates& rates) {
  if (budget.max_sequences > 0) return std::make_unique<Forecast>(model, budget, rates);
  // Also more than the engine would take by itself, which gives up sequences before rows.
  constexpr uint32_t kCandidates[] = {1,  2,  4,  8,   12,  16,  24,  32,  48,
                                      64, 80, 96, 112, 128, 160, 192, 224, 256};
  // Fewer sequences are better when they are as fast: less memory, shorter to the first answer.
  constexpr double kBetter = 1.01;
  auto best = std::make_unique<Forecast>(model, budget, rates);
  const double context = best->demand().typical_tokens;
  const auto tokens_per_s = [&](const Forecast& forecast) {
    const uint32_t n = forecast.n_sequences();
    return n / forecast.decode(n, context).sweep_s();
  };
  double most = tokens_per_s(*best);
  for (size_t i = std::size(kCandidates); i > 0; --i) {
    if (kCandidates[i - 1] > budget.most_sequences) continue;
    ForecastBudget other = budget;
    other.max_sequences = kCandidates[i - 1];
    std::unique_ptr<Forecast> forecast;
    try {
      forecast = std::make_unique<Forecast>(model, other, rates);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::device) throw;
      continue;  // so many do not fit at all
    }
    // What has no rate would count as free.
    if (forecast->lacks_disk_rate() && !best->lacks_disk_rate()) continue;
    const double found = tokens_per_s(*forecast);
    if (found * kBetter < most) continue;
    best = std::move(forecast);
    most = std::max(most, found);
  }
  return best;
}

}  // namespace nightsweep
