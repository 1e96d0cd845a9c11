#include "runner/sweep_bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/machine_probe.h"
#include "engine/ring_loader.h"
#include "engine/synthetic_model.h"
#include "runner/command.h"
#include "runner/model_source.h"
#include "runner/output.h"
#include "runner/passing_file.h"
#include "runner/planning.h"
#include "runner/sweep_plot.h"

namespace nightsweep {

namespace {

// Fixed tokens without text, as other engines' benchmarks feed them: nothing depends on what a
// model likes to say.
std::vector<uint32_t> fixed_prompt(uint32_t sequence, uint32_t n_tokens, uint32_t n_vocab) {
  constexpr uint32_t kSpecial = 300;  // low ids are bytes and markers
  constexpr uint32_t kFirst = 260;
  uint32_t range = n_vocab > 2 * kSpecial ? n_vocab - kSpecial : n_vocab;
  uint32_t first = n_vocab > 2 * kSpecial ? kFirst : 0;
  std::vector<uint32_t> tokens(n_tokens);
  for (uint32_t p = 0; p < n_tokens; ++p)
    tokens[p] = (7 * p + sequence) % range + first;
  return tokens;
}

struct CaseLoad {
  uint32_t n_sequences = 0;
  uint32_t n_prompt = 0;
  uint32_t n_generate = 0;
  uint32_t context() const { return n_prompt + n_generate; }
};

void submit_all(Engine& engine, const CaseLoad& load) {
  for (uint32_t s = 0; s < load.n_sequences; ++s) {
    SequenceRequest request;
    request.handle = s + 1;
    request.prompt = fixed_prompt(s, load.n_prompt, engine.config().n_vocab);
    request.sampling.temperature = 0;
    request.max_tokens = load.n_generate + 1;
    request.ignore_eos = true;
    engine.submit(std::move(request));
  }
}

// Weights that stay are read in the first sweep; what a night pays once is no part of a case.
void warm_up(Engine& engine) {
  submit_all(engine, {.n_sequences = 1, .n_prompt = 1, .n_generate = 1});
  while (engine.n_active() > 0)
    engine.step();
}

// Seconds and rows of a kind of sweep.
struct Sum {
  double seconds = 0;
  uint64_t rows = 0;
  uint64_t n_sweeps = 0;
  void add(double taken_s, double part, uint32_t n_rows) {
    seconds += taken_s * part;
    rows += n_rows;
    ++n_sweeps;
  }
};

// All sequences together: every prompt first, then one token a sweep and sequence.
SweepCase measure(Engine& engine, const CaseLoad& load) {
  submit_all(engine, load);
  const EngineStats before = engine.stats();
  Sum prefill;
  Sum decode;
  Sum full;  // all sequences decode
  double total_s = 0;
  while (engine.n_active() > 0) {
    auto begun = std::chrono::steady_clock::now();
    StepReport report = engine.step();
    double taken_s = seconds_since(begun);
    total_s += taken_s;
    if (report.evictions > 0) {
      fail(
          ErrorKind::device,
          "bench: {} sequences of {} tokens do not fit the memory for KV (give more --ram or "
          "--vram)",
          load.n_sequences, load.context());
    }
    if (report.rows == 0) continue;
    // A mixed sweep counts for both by its rows.
    const double prefill_part = static_cast<double>(report.prefill_rows) / report.rows;
    prefill.add(taken_s, prefill_part, report.prefill_rows);
    decode.add(taken_s, 1 - prefill_part, report.decode_rows);
    if (report.decode_rows == load.n_sequences) full.add(taken_s, 1, report.decode_rows);
  }
  SweepCase found{.n_sequences = load.n_sequences};
  if (prefill.seconds > 0) found.prefill_tps = static_cast<double>(prefill.rows) / prefill.seconds;
  if (full.n_sweeps > 0) {
    found.decode_tps = static_cast<double>(full.rows) / full.seconds;
    found.decode_sweep_s = full.seconds / static_cast<double>(full.n_sweeps);
  } else {
    log_warning(
        "in no sweep did all {} sequences decode, so none is held against its forecast: prompts of "
        "{} tokens take longer than answers of {} (give a longer --generate)",
        load.n_sequences, load.n_prompt, load.n_generate);
    if (decode.seconds > 0) found.decode_tps = static_cast<double>(decode.rows) / decode.seconds;
  }
  found.all_in_tps = static_cast<double>(load.n_sequences) * (load.n_generate + 1) / total_s;
  EngineStats stats = engine.stats();
  found.free_rows = stats.free_rows;
  stats.stream.streamed_bytes -= before.stream.streamed_bytes;
  stats.stream.filled_bytes -= before.stream.filled_bytes;
  stats.stream.copied_bytes -= before.stream.copied_bytes;
  stats.stream.wait_s -= before.stream.wait_s;
  stats.step_s -= before.step_s;
  found.streamed_bytes = stats.stream.streamed_bytes;
  found.disk_share = disk_share(stats);
  found.disk_rate = stats.stream.measured_disk_rate;
  found.copied_bytes = stats.stream.copied_bytes;
  found.link_share = link_share(stats);
  found.link_rate = stats.stream.measured_link_rate;
  if (stats.step_s > 0) {
    found.wait_share = stats.stream.wait_s / stats.step_s;
    found.read_busy_share = (stats.stream.read_busy_s - before.stream.read_busy_s) / stats.step_s;
    found.idle_share = (stats.device_idle_s - before.device_idle_s) / stats.step_s;
  }
  return found;
}

void predict(const Forecast& forecast, const CaseLoad& load, bool is_gpu, SweepCase& found) {
  const SweepCost cost = forecast.decode(load.n_sequences, load.n_prompt + load.n_generate / 2.0);
  found.predicted_sweep_s = cost.sweep_s();
  found.traffic_s = std::max(cost.link_s, cost.disk_s);
  found.binding = bound_name(cost.bound(), !is_gpu);
  const NightCost night = forecast.night(
      {.n_jobs = load.n_sequences,
       .prompt_tokens = load.n_prompt,
       .answer_tokens = load.n_generate + 1});
  const double warm_s = night.finish_s - night.fill_s;
  const double tokens = static_cast<double>(load.n_sequences) * (load.n_generate + 1);
  found.predicted_all_in_tps = tokens / warm_s;
  if (night.prefill_s > 0) {
    found.predicted_prefill_tps =
        static_cast<double>(load.n_sequences) * load.n_prompt / night.prefill_s;
  }
}

// A file of made-up weights; a temporary one goes with it.
class SyntheticFile {
 public:
  SyntheticFile(const std::string& shape, const std::optional<std::string>& path) {
    path_ = path ? *path : temporary_path(shape);
    if (!path) passing_.emplace(path_);
    const uint64_t size_bytes = synthetic_model(shape).file_bytes().front();
    std::error_code missing;
    if (std::filesystem::file_size(path_, missing) == size_bytes && !missing) return;
    if (!missing) {
      fail(
          ErrorKind::usage, "--shape-file {}: there is a file, and it is not of {} as {} is", path_,
          size_text(size_bytes), shape);
    }
    log_info("writing {} of weights to {}", size_text(size_bytes), path_);
    write_synthetic_model(shape, path_);
  }
  const std::string& path() const { return path_; }

 private:
  // Not in /tmp, which may be memory.
  static std::string temporary_path(const std::string& shape) {
    const char* cache = std::getenv("XDG_CACHE_HOME");  // NOLINT(concurrency-mt-unsafe)
    const char* home = std::getenv("HOME");             // NOLINT(concurrency-mt-unsafe)
    if (cache == nullptr && home == nullptr) {
      fail(ErrorKind::usage, "--shape: no HOME to write the weights to (give --shape-file FILE)");
    }
    const std::filesystem::path folder =
        (cache != nullptr ? std::filesystem::path(cache) : std::filesystem::path(home) / ".cache") /
        "nightsweep";
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail(ErrorKind::storage, "{}: {}", folder.string(), error.message());
    std::string name = shape;
    std::ranges::replace(name, ':', '-');
    return (folder / format("{}-{}.gguf", name, ::getpid())).string();
  }

  std::string path_;
  std::optional<PassingFile> passing_;
};

// Operators and link of this machine.
MachineRates measure_rates(
    CommonOptions options,
    const Arguments& arguments,
    const PlannedDevice& device,
    const PlannedModel& model) {
  // Throttles are no rates.
  options.link_rate = 0;
  options.disk_rate = 0;
  MachineRates rates = rates_of(options, arguments, device, model);
  if (device.is_gpu && rates.link_rate == 0) {
    rates.link_rate = probe_link(*open_device(options)).to_device;
  }
  return rates;
}

double disk_rate_now(const std::string& file) {
  constexpr double kLongEnough = 2;  // seconds
  return probe_disk(file, {kReadsInFlight}, kLongEnough).best();
}

// Link and disk are held down as far as the options say.
std::unique_ptr<Forecast> forecast_case(
    const ForecastModel& model,
    const ForecastBudget& budget,
    const CommonOptions& options,
    MachineRates rates) {
  if (options.link_rate > 0) rates.link_rate = std::min(rates.link_rate, options.link_rate);
  if (options.disk_rate > 0 && rates.disk_rate > 0) {
    rates.disk_rate = std::min(rates.disk_rate, options.disk_rate);
  }
  return std::make_unique<Forecast>(model, budget, rates);
}

}  // namespace

Json case_json(const SweepCase& one) {
  Json object = Json::Object{};
  object.set("sequences", one.n_sequences);
  object.set("prefill_tps", one.prefill_tps);
  object.set("decode_tps", one.decode_tps);
  object.set("all_in_tps", one.all_in_tps);
  object.set("decode_sweep_s", one.decode_sweep_s);
  object.set("predicted_sweep_s", one.predicted_sweep_s);
  if (one.decode_sweep_s > 0) {
    object.set("measured_over_predicted", one.measured_over_predicted());
  }
  object.set("predicted_prefill_tps", one.predicted_prefill_tps);
  object.set("predicted_all_in_tps", one.predicted_all_in_tps);
  object.set("binding", one.binding);
  if (one.limit_tps() > 0) {
    object.set("limit_tps", one.limit_tps());
    object.set("share_of_limit", one.decode_tps / one.limit_tps());
  }
  object.set("streamed_bytes", one.streamed_bytes);
  object.set("disk_share", one.disk_share);
  object.set("disk_rate", one.disk_rate);
  object.set("copied_bytes", one.copied_bytes);
  object.set("link_share", one.link_share);
  object.set("link_rate", one.link_rate);
  object.set("wait_share", one.wait_share);
  object.set("read_busy_share", one.read_busy_share);
  object.set("idle_share", one.idle_share);
  if (one.free_rows > 0) object.set("free_rows", one.free_rows);
  return object;
}

std::string case_heading() {
  return "           tokens/s                     decode sweep, ms             limit of link and "
         "disk\n"
         "sequences  prefill   decode   all-in    measured predicted   m/p    tokens/s  share   "
         "binds  link  disk\n";
}

std::string case_text(const SweepCase& one) {
  const bool has_limit = one.limit_tps() > 0;
  return format(
      "{:9}  {:7.1f}  {:7.1f}  {:7.1f}    {:8.2f}  {:8.2f}  {:>4}    {:>8}  {:>5}   {:5}  {:>4}  "
      "{:>4}\n",
      one.n_sequences, one.prefill_tps, one.decode_tps, one.all_in_tps, 1e3 * one.decode_sweep_s,
      1e3 * one.predicted_sweep_s,
      one.decode_sweep_s > 0 ? format("{:.2f}", one.measured_over_predicted()) : "-",
      has_limit ? format("{:.1f}", one.limit_tps()) : "-",
      has_limit ? format("{:.2f}", one.decode_tps / one.limit_tps()) : "-", one.binding,
      one.copied_bytes > 0 ? format("{:.0f}%", 100 * one.link_share) : "-",
      one.streamed_bytes > 0 ? format("{:.0f}%", 100 * one.disk_share) : "-");
}

int bench_sweep(const Arguments& arguments) {
  // Here --batch is a list, so it is taken out of the options that mean the same everywhere.
  CommonOptions options = begin_command(arguments.without("batch"));
  std::vector<uint32_t> batches =
      parse_counts(arguments.find("batch").value_or("1,16,64"), "--batch", 1, 65536);
  auto count = [&](const char* name, uint32_t otherwise) {
    auto text = arguments.find(name);
    if (!text) return otherwise;
    return static_cast<uint32_t>(parse_count(*text, std::string("--") + name, 1, 1 << 20));
  };
  CaseLoad load{.n_prompt = count("prompt", 32), .n_generate = count("generate", 64)};
  const auto svg_path = arguments.find("svg");
  if (svg_path) AtomicFile::check(*svg_path);
  PlannedModel model = open_planned_model(options, arguments);
  std::optional<SyntheticFile> synthetic;
  if (model.file.empty()) {
    synthetic.emplace(model.name, arguments.find("shape-file"));
    model.file = synthetic->path();
    model.gguf = std::make_shared<const GgufModel>(GgufModel::open(model.file));
  }
  const uint32_t own =
      model.config.context_tokens > 0 ? model.config.context_tokens : kContextWhenUnknown;
  // Room for keys and values: of --context, if it is given, and else of what the cases need.
  if (options.context_tokens == 0) options.context_tokens = std::min(load.context(), own);
  if (load.context() > std::min(options.context_tokens, own)) {
    fail(
        ErrorKind::usage, "--prompt {} and --generate {} do not fit a context of {} tokens",
        load.n_prompt, load.n_generate, std::min(options.context_tokens, own));
  }
  PlannedDevice device;
  device.is_gpu = choose_device(options).cuda.has_value();
  device.is_here = true;
  MachineRates rates = measure_rates(options, arguments, device, model);
  const ForecastModel planned{
      .gguf = *model.gguf,
      .config = model.config,
      .device = device.is_gpu ? cuda_sizes() : make_cpu_device({}),
      .kv_type = options.kv_type};

  // Memory is shared otherwise for every batch, as a worker with this --batch would; where all
  // weights stay in a GPU's memory even with the largest, it loads once.
  const uint32_t largest = *std::ranges::max_element(batches);
  bool loads_once = false;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Forecast> forecast;
  ForecastBudget budget;
  // Nobody knows it, and sweeps read the disk.
  bool lacks_disk_rate = false;
  std::vector<SweepCase> cases;
  if (!options.json) Stdout().write(case_heading());
  for (uint32_t n_sequences : batches) {
    if (engine == nullptr || !loads_once) {
      engine.reset();
      options.max_sequences = device.is_gpu ? largest : n_sequences;
      budget = budget_of(options, device, model.config);
      budget.typical_tokens = options.context_tokens;
      loads_once = device.is_gpu && Forecast(planned, budget, rates).plan().ring_bytes == 0;
      if (!loads_once) options.max_sequences = budget.max_sequences = n_sequences;
      forecast = forecast_case(planned, budget, options, rates);
      lacks_disk_rate = forecast->lacks_disk_rate();
      EngineOptions engine_options = engine_options_of(options);
      engine_options.typical_tokens = options.context_tokens;
      engine = Engine::open(model.gguf, open_device(options), engine_options);
      warm_up(*engine);
    }
    load.n_sequences = n_sequences;
    // A disk that others use too is not as quick from one minute to the next.
    const double disk_before = lacks_disk_rate ? disk_rate_now(model.file) : 0;
    SweepCase found = measure(*engine, load);
    if (lacks_disk_rate) {
      MachineRates with_disk = rates;
      with_disk.disk_rate = (disk_before + disk_rate_now(model.file)) / 2;
      forecast = forecast_case(planned, budget, options, with_disk);
    }
    predict(*forecast, load, device.is_gpu, found);
    Stdout().write(options.json ? case_json(found).dump() + "\n" : case_text(found));
    cases.push_back(std::move(found));
  }
  if (svg_path) {
    AtomicFile file(*svg_path, 0644);
    file.write(sweep_plot(model.name, cases));
    file.commit();
  }
  return 0;
}

}  // namespace nightsweep
