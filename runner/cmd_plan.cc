#include <algorithm>

#include "engine/kv_cache.h"
#include "runner/command.h"
#include "runner/output.h"
#include "runner/plan_report.h"
#include "runner/planning.h"

namespace nightsweep {

namespace {

constexpr uint32_t kMostTokens = 1U << 24;

std::optional<NightLoad> night_of(const Arguments& arguments) {
  const auto count = [&](const char* name, uint64_t most) -> uint64_t {
    const auto text = arguments.find(name);
    return text ? parse_count(*text, std::string("--") + name, 1, most) : 0;
  };
  NightLoad load{
      .n_jobs = count("jobs", UINT32_MAX),
      .prompt_tokens = static_cast<uint32_t>(count("prompt-tokens", kMostTokens)),
      .answer_tokens = static_cast<uint32_t>(count("answer-tokens", kMostTokens))};
  if (load.n_jobs == 0 && load.prompt_tokens == 0 && load.answer_tokens == 0) return std::nullopt;
  if (load.n_jobs == 0 || load.prompt_tokens == 0 || load.answer_tokens == 0) {
    fail(
        ErrorKind::usage,
        "--jobs, --prompt-tokens and --answer-tokens belong together: a whole night needs all "
        "three");
  }
  return load;
}

int plan(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  const CommonOptions options = begin_command(arguments);
  const std::optional<NightLoad> night = night_of(arguments);
  const PlannedModel model = open_planned_model(options, arguments);
  const PlannedDevice device = choose_planned_device(options, arguments);
  ForecastBudget budget = budget_of(options, device, model.config);
  if (night) {
    const uint32_t tokens = night->prompt_tokens + night->answer_tokens;
    if (tokens > budget.context_tokens) {
      fail(
          ErrorKind::usage, "prompts of {} and answers of {} tokens do not fit a context of {}",
          night->prompt_tokens, night->answer_tokens, budget.context_tokens);
    }
    budget.typical_tokens = tokens;
    budget.most_sequences = static_cast<uint32_t>(night->n_jobs);
    budget.most_kv_pages = static_cast<uint32_t>(
        std::min<uint64_t>(night->n_jobs * KvCache::pages_for_request(tokens), UINT32_MAX));
  } else if (options.context_tokens > 0) {
    budget.typical_tokens = options.context_tokens;
  }
  PlanReport report;
  report.model_name = model.name;
  report.kv_type = options.kv_type;
  report.is_gpu = device.is_gpu;
  report.rates = rates_of(options, arguments, device, model);
  const ForecastModel planned{
      .gguf = *model.gguf,
      .config = model.config,
      .device =
          device.is_gpu
              ? std::shared_ptr<const DeviceSizes>(cuda_sizes())
              : std::shared_ptr<const DeviceSizes>(make_cpu_device(
                    {.math = options.math, .n_threads = options.n_threads, .instruction_set = {}})),
      .kv_type = options.kv_type};
  const auto forecast =
      forecast_with_rates(planned, budget, options, device, model.file, report.rates);
  report.budget = budget;
  report.engine_sequences = Forecast(planned, budget, report.rates).n_sequences();
  // In the middle of an answer.
  report.context = night ? night->prompt_tokens + night->answer_tokens / 2.0
                         : std::min(budget.typical_tokens, budget.context_tokens);
  report.night = night;
  report.advice = find_advice(planned, budget, report.rates, night);
  Stdout().write(
      options.json ? plan_json(*forecast, report).dump() + "\n" : plan_text(*forecast, report));
  return 0;
}

}  // namespace

Command make_plan_command() {
  return {
      .name = "plan",
      .summary = "where weights would live, how long a sweep and a night would take",
      .usage = "--model MODEL | --shape SHAPE:TYPE [options]",
      .example =
          "nightsweep plan --shape llama-70b:Q4_K_M --vram 22GiB --ram 40GiB --link-rate "
          "6.5GB/s --disk-rate 3.35GB/s --jobs 1000 --prompt-tokens 128 --answer-tokens 128",
      .options = join(
          {planning_options(),
           {{.name = "jobs", .value = "N", .help = "a whole night: so many jobs"},
            {.name = "prompt-tokens", .value = "N", .help = "of each job"},
            {.name = "answer-tokens", .value = "N", .help = "of each job"}},
           engine_options(),
           {json_option()},
           general_options()}),
      .min_positionals = 0,
      .max_positionals = 0,
      .run = plan};
}

}  // namespace nightsweep
