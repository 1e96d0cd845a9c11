#include "runner/plan_report.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace nightsweep {

namespace {

const char* tier_name(Tier tier, bool is_gpu) {
  switch (tier) {
    case Tier::resident:
      return is_gpu ? "vram" : "ram";
    case Tier::host:
      return "ram";
    case Tier::disk:
      break;
  }
  return "disk";
}

// "blk.12.", or "" for the head.
std::string layer_of(const WeightSlice& slice) {
  const std::string& name = slice.extents.front().tensor->name;
  if (!name.starts_with("blk.")) return "";
  return name.substr(0, name.find('.', 4) + 1);
}

std::string seconds_text(double seconds) {
  if (seconds >= 10) return format("{:.1f} s", seconds);
  if (seconds >= 1) return format("{:.2f} s", seconds);
  if (seconds >= 0.01) return format("{:.0f} ms", seconds * 1e3);
  return format("{:.2f} ms", seconds * 1e3);
}

std::string origin_text(const MachineRates& rates, const char* name) {
  const std::string* origin = rates.origin_of(name);
  return origin == nullptr ? "" : format(" ({})", *origin);
}

std::string memory_text(const Forecast& forecast, const PlanReport& report) {
  const MemoryPlan& plan = forecast.plan();
  const Placement& placement = forecast.placement();
  const uint64_t kv_bytes = plan.n_kv_pages * forecast.demand().kv_page_bytes;
  std::string text = format(
      "{:9} {}: {} of weights, {} of keys and values ({} tokens), {} ring, {} scratch{}\n",
      report.is_gpu ? "GPU" : "memory",
      size_text(report.is_gpu ? report.budget.vram_bytes : report.budget.ram_bytes),
      size_text(placement.resident_bytes), size_text(kv_bytes),
      uint64_t{plan.n_kv_pages} * kKvPageTokens, size_text(plan.ring_bytes),
      size_text(plan.scratch_bytes), plan.embedding_resident ? ", the embedding" : "");
  if (report.is_gpu && placement.link_bytes > 0) {
    text += format(
        "{:9} {}: {} of weights, page-locked, {} ring\n", "RAM", size_text(report.budget.ram_bytes),
        size_text(placement.host_bytes), size_text(placement.host_ring_bytes));
  }
  if (placement.disk_bytes > 0) {
    text += format(
        "{:9} {} of weights, read in every sweep\n", "disk", size_text(placement.disk_bytes));
  }
  return text;
}

std::string term_line(const char* name, double seconds, const std::string& what, bool binds) {
  return format(
      "  {:8} {:>9}   {}{}\n", name, seconds > 0 ? seconds_text(seconds) : "-", what,
      binds ? "   <- binds" : "");
}

std::string sweep_text(const Forecast& forecast, const PlanReport& report, const SweepCost& cost) {
  const Placement& placement = forecast.placement();
  const MachineRates& rates = report.rates;
  const Bound bound = cost.bound();
  const uint32_t n = forecast.n_sequences();
  std::string text = format(
      "\nA sweep of {} sequence{} with {:.0f} tokens each:\n", n, n == 1 ? "" : "s",
      report.context);
  const auto moved = [&](uint64_t n_bytes, double rate, const char* name, const char* nothing) {
    return n_bytes == 0
               ? std::string(nothing)
               : format(
                     "{} at {}{}", size_text(n_bytes), rate_text(rate), origin_text(rates, name));
  };
  if (report.is_gpu) {
    text += term_line(
        "link", cost.link_s,
        moved(placement.link_bytes, rates.link_rate, "link", "nothing crosses it"),
        bound == Bound::link);
  }
  text += term_line(
      "disk", cost.disk_s, moved(placement.disk_bytes, rates.disk_rate, "disk", "nothing is read"),
      bound == Bound::disk);
  text += term_line(
      "flops", cost.flops_s,
      format(
          "{:.1f} G weights x {} rows at {:.3g} T operations/s{}",
          static_cast<double>(forecast.n_weights()) / 1e9, n, rates.flops / 1e12,
          origin_text(rates, "flops")),
      bound == Bound::flops);
  text += term_line(
      report.is_gpu ? "vram" : "ram", cost.vram_s,
      format(
          "weights, keys and values at {}{}", rate_text(rates.memory_rate),
          origin_text(rates, "memory")),
      bound == Bound::vram);
  text += format(
      "  {:8} {:>9}   operators one after the other, beside link and disk\n", "compute",
      seconds_text(cost.compute_s));
  text += format(
      "  {:8} {:>9}   {:.4g} tokens/s\n", "sweep", seconds_text(cost.sweep_s()),
      n / cost.sweep_s());
  return text;
}

Json night_json(const NightLoad& load, const NightCost& cost) {
  Json object = Json::Object{};
  object.set("jobs", load.n_jobs);
  object.set("prompt_tokens", load.prompt_tokens);
  object.set("answer_tokens", load.answer_tokens);
  object.set("sweeps", cost.n_sweeps);
  object.set("first_read_s", cost.fill_s);
  object.set("prefill_s", cost.prefill_s);
  object.set("decode_s", cost.decode_s);
  object.set("tail_s", cost.tail_s);
  object.set("tokens_per_s", night_tokens_per_s(load, cost));
  return object;
}

Json placement_json(const Forecast& forecast, bool is_gpu) {
  const Placement& placement = forecast.placement();
  const MemoryPlan& plan = forecast.plan();
  Json object = Json::Object{};
  object.set("resident_bytes", placement.resident_bytes);
  object.set("ram_bytes", placement.host_bytes);
  object.set("disk_bytes", placement.disk_bytes);
  object.set("link_bytes", placement.link_bytes);
  object.set("ring_bytes", plan.ring_bytes);
  object.set("ram_ring_bytes", placement.host_ring_bytes);
  object.set("scratch_bytes", plan.scratch_bytes);
  object.set("kv_pages", plan.n_kv_pages);
  object.set("kv_bytes", plan.n_kv_pages * forecast.demand().kv_page_bytes);
  object.set("embedding_resident", plan.embedding_resident);
  Json::Array groups;
  const std::vector<WeightSlice>& slices = forecast.slices().plan.slices;
  for (size_t i = 0; i < slices.size(); ++i) {
    Json group = Json::Object{};
    Json::Array tensors;
    for (const WeightExtent& extent : slices[i].extents) {
      const bool is_whole = extent.n_rows == extent.tensor->dims[1];
      tensors.emplace_back(
          is_whole ? extent.tensor->name
                   : format(
                         "{}[{}:{}]", extent.tensor->name, extent.first_row,
                         extent.first_row + extent.n_rows));
    }
    group.set("tensors", std::move(tensors));
    group.set("bytes", slices[i].size_bytes);
    group.set("tier", tier_name(placement.tiers[i], is_gpu));
    groups.push_back(std::move(group));
  }
  object.set("groups", std::move(groups));
  return object;
}

// Beside all sequences, each with its next token.
uint32_t
free_prompt_rows(const Forecast& forecast, const PlanReport& report, uint32_t prompt_tokens) {
  return forecast.free_prompt_rows(
      {.decode_rows = forecast.n_sequences(),
       .decode_context = report.context,
       .prefill_context = prompt_tokens / 2.0,
       .logit_rows = forecast.n_sequences()});
}

}  // namespace

std::string depth_text(const Forecast& forecast, bool is_gpu) {
  constexpr size_t kShownLayers = 6;
  const std::vector<WeightSlice>& slices = forecast.slices().plan.slices;
  std::string text;
  std::string layer = layer_of(slices.front());
  size_t n_layers = 1;
  for (size_t i = 0; i < slices.size(); ++i) {
    if (const std::string name = layer_of(slices[i]); name != layer) {
      if (++n_layers > kShownLayers) return text + " ...";
      layer = name;
      text += ' ';
    }
    const Tier tier = forecast.placement().tiers[i];
    text += tier == Tier::resident ? (is_gpu ? 'V' : 'M') : tier == Tier::host ? 'R' : 'D';
  }
  return text;
}

std::string plan_text(const Forecast& forecast, const PlanReport& report) {
  const auto decode = forecast.decode(forecast.n_sequences(), report.context);
  std::string text = format(
      "{}: {} of weights in {} slices, keys and values {} a token ({})\n", report.model_name,
      size_text(forecast.slices().plan.streamable_bytes), forecast.slices().plan.slices.size(),
      size_text(forecast.kv_bytes_per_token()), kv_type_name(report.kv_type));
  text += memory_text(forecast, report);
  text += format(
      "{:9} {}   ({}, R RAM, D disk; a letter a slice)\n", "layers",
      depth_text(forecast, report.is_gpu), report.is_gpu ? "V GPU" : "M memory");
  text += sweep_text(forecast, report, decode);
  if (report.budget.max_sequences == 0 && report.engine_sequences != forecast.n_sequences()) {
    text += format(
        "  give --batch {} to have it so; without it as many run as fit, here {}\n",
        forecast.plan().max_sequences, report.engine_sequences);
  }
  if (forecast.n_sequences() < forecast.plan().max_sequences) {
    text += format(
        "  there is room for keys and values of {} sequences at once, not of {}\n",
        forecast.n_sequences(), forecast.plan().max_sequences);
  }
  const auto prompt_tokens = static_cast<uint32_t>(
      report.night ? report.night->prompt_tokens : std::max(1.0, report.context / 2));
  const SweepCost prefill = forecast.prefill(prompt_tokens);
  const StepLimits& limits = forecast.plan().limits;
  text += format(
      "  prefill  {:>9}   a sweep of {} rows{}: {:.4g} tokens/s\n", seconds_text(prefill.sweep_s()),
      limits.max_rows, limits.has_batches() ? format(" in batches of {}", limits.batch_rows) : "",
      limits.max_rows / prefill.sweep_s());
  if (report.is_gpu && forecast.placement().link_bytes > 0 && !forecast.lacks_link_rate() &&
      !forecast.lacks_disk_rate()) {
    text += format(
        "                      beside answers {} rows of prompts, while the weights pass\n",
        free_prompt_rows(forecast, report, prompt_tokens));
  }
  if (report.night) {
    const NightCost cost = forecast.night(*report.night);
    text += format(
        "\n{} jobs of {} + {} tokens: {}, {:.4g} tokens/s of answers\n"
        "  {} sweeps: prompts {}, answers {} (of which {} with sequences missing at the end)",
        report.night->n_jobs, report.night->prompt_tokens, report.night->answer_tokens,
        duration_text(cost.finish_s), night_tokens_per_s(*report.night, cost), cost.n_sweeps,
        duration_text(cost.prefill_s), duration_text(cost.decode_s), duration_text(cost.tail_s));
    text += report.rates.disk_rate > 0
                ? format(", first read {}\n", duration_text(cost.fill_s))
                : "; without the first read of the weights (no --disk-rate)\n";
  }
  if (!report.advice.empty()) {
    text += "\nWhat would help most:\n";
    for (const Advice& advice : report.advice) {
      text += format(
          "  {}: {:.2g} times{}\n", advice.change, advice.factor,
          advice.n_sequences == forecast.n_sequences()
              ? ""
              : format(", with {} sequences", advice.n_sequences));
    }
  }
  return text;
}

Json plan_json(const Forecast& forecast, const PlanReport& report) {
  const uint32_t n = forecast.n_sequences();
  const SweepCost cost = forecast.decode(n, report.context);
  Json object = Json::Object{};
  object.set("model", report.model_name);
  object.set("device", report.rates.device);
  object.set("vram_bytes", report.budget.vram_bytes);
  object.set("ram_bytes", report.budget.ram_bytes);
  object.set("sequences", n);
  object.set("max_sequences", forecast.plan().max_sequences);
  object.set("sequences_without_batch", report.engine_sequences);
  object.set("context", report.context);
  object.set("kv", kv_type_name(report.kv_type));
  object.set("sweep_s", cost.sweep_s());
  object.set("tokens_per_s", n / cost.sweep_s());
  object.set("binding", bound_name(cost.bound(), !report.is_gpu));
  Json terms = Json::Object{};
  terms.set("link_s", cost.link_s);
  terms.set("disk_s", cost.disk_s);
  terms.set("flops_s", cost.flops_s);
  terms.set("vram_s", cost.vram_s);
  terms.set("compute_s", cost.compute_s);
  object.set("terms", std::move(terms));
  const auto prompt_tokens = static_cast<uint32_t>(
      report.night ? report.night->prompt_tokens : std::max(1.0, report.context / 2));
  object.set(
      "prefill_tokens_per_s",
      forecast.plan().limits.max_rows / forecast.prefill(prompt_tokens).sweep_s());
  object.set("prompt_rows_beside_answers", free_prompt_rows(forecast, report, prompt_tokens));
  if (report.night) {
    const NightCost night = forecast.night(*report.night);
    object.set("finish_s", night.finish_s);
    object.set("night", night_json(*report.night, night));
  } else {
    object.set("finish_s", nullptr);
  }
  Json rates = rates_json(report.rates);
  Json origins = Json::Object{};
  for (const auto& [name, origin] : report.rates.origins)
    origins.set(name, origin);
  rates.set("origins", std::move(origins));
  object.set("rates", std::move(rates));
  Json::Array advice;
  for (const Advice& one : report.advice) {
    Json entry = Json::Object{};
    entry.set("change", one.change);
    entry.set("factor", one.factor);
    entry.set("sequences", one.n_sequences);
    advice.push_back(std::move(entry));
  }
  object.set("advice", std::move(advice));
  object.set("placement", placement_json(forecast, report.is_gpu));
  return object;
}

}  // namespace nightsweep
