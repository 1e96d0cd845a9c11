#include "runner/planning.h"

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/host_memory.h"
#include "engine/inspect.h"
#include "engine/machine_probe.h"
#include "engine/plan.h"
#include "engine/ring_loader.h"
#include "engine/synthetic_model.h"
#include "runner/model_source.h"

namespace nightsweep {

namespace {

constexpr const char* kAssumedGpu = "rtx-3090";

double find_rate(const Arguments& arguments, const char* name) {
  const auto text = arguments.find(name);
  return text ? parse_rate(*text, std::string("--") + name) : 0;
}

// "59T", "59e12": operations a second.
double find_flops(const Arguments& arguments) {
  const auto text = arguments.find("flops");
  if (!text) return 0;
  char* end = nullptr;
  const double number = std::strtod(text->c_str(), &end);
  const std::string unit = end;
  const double factor = unit == "T"   ? 1e12
                        : unit == "G" ? 1e9
                        : unit == "P" ? 1e15
                                      : static_cast<double>(unit.empty());
  if (end == text->c_str() || factor == 0 || !(number > 0)) {
    fail(ErrorKind::usage, "--flops: expected operations a second such as 59T, found '{}'", *text);
  }
  return number * factor;
}

void take_sheet(const GpuSheet& sheet, MachineRates& rates) {
  const MachineRates of_sheet = rates_of_sheet(sheet);
  if (rates.memory_rate == 0) {
    rates.memory_rate = of_sheet.memory_rate;
    rates.set_origin("memory", *of_sheet.origin_of("memory"));
  }
  if (rates.flops == 0) {
    rates.flops = of_sheet.flops;
    rates.set_origin("flops", *of_sheet.origin_of("flops"));
  }
  if (rates.operator_s == 0) rates.operator_s = of_sheet.operator_s;
  if (rates.device.empty()) rates.device = of_sheet.device;
}

void measure_operators(
    const CommonOptions& options,
    const PlannedModel& model,
    MachineRates& rates) {
  const auto device = open_device(options);
  log_info("measuring the operators of {} (give --rates FILE to skip it)", device->description());
  MachineRates measured =
      probe_operators(*device, probe_shape_of(*model.gguf, model.config, options.kv_type));
  measured.link_rate = rates.link_rate;
  measured.disk_rate = rates.disk_rate;
  measured.origins = rates.origins;
  if (!device->shares_host_memory() && measured.link_rate == 0) {
    measured.link_rate = probe_link(*device).to_device;
    measured.set_origin("link", "measured here");
  }
  rates = std::move(measured);
  rates.set_origin("memory", "measured here");
  rates.set_origin("flops", "measured here");
}

}  // namespace

std::vector<OptionSpec> planning_options() {
  return {
      {.name = "shape",
       .value = "SHAPE:TYPE",
       .help = "a model without a file: llama-70b:Q4_K_M, llama-8b:Q8_0"},
      {.name = "rates", .value = "FILE", .help = "what `bench links --rates FILE` has measured"},
      {.name = "gpu",
       .value = "NAME",
       .help = "memory and speed of a GPU by its data sheet: rtx-3090, rtx-4090"},
      {.name = "vram-rate", .value = "RATE", .help = "what operators read of its memory: 450GB/s"},
      {.name = "flops", .value = "N", .help = "operations a second of its operators: 30T"},
  };
}

PlannedModel open_planned_model(const CommonOptions& options, const Arguments& arguments) {
  const auto shape = arguments.find("shape");
  if (shape && arguments.has("model")) {
    fail(ErrorKind::usage, "--model and --shape exclude each other");
  }
  PlannedModel model;
  if (shape) {
    model.name = *shape;
    model.gguf = std::make_shared<const GgufModel>(synthetic_model(*shape));
  } else {
    if (options.model.empty()) {
      fail(ErrorKind::usage, "expected --model FILE, or --shape SHAPE:TYPE for one without a file");
    }
    model.file = chosen_model(options).path;
    model.name = model.file;
    model.gguf = std::make_shared<const GgufModel>(GgufModel::open(model.file));
  }
  InspectReport report = inspect_model(*model.gguf);
  if (!report.why_not.empty()) fail(ErrorKind::model, "{}", report.why_not);
  model.config = *report.config;
  return model;
}

PlannedDevice choose_planned_device(const CommonOptions& options, const Arguments& arguments) {
  PlannedDevice device;
  if (const auto name = arguments.find("gpu")) {
    const GpuSheet* sheet = find_gpu_sheet(*name);
    if (sheet == nullptr) {
      fail(ErrorKind::usage, "--gpu: expected one of {}, found '{}'", known_gpu_sheets(), *name);
    }
    device.sheet = *sheet;
  }
  const bool is_asked = options.device.starts_with("cuda");
  if (options.device == "cpu") {
    if (device.sheet) fail(ErrorKind::usage, "--device cpu and --gpu exclude each other");
    device.is_here = true;
    return device;
  }
  // Figures of a GPU tell that one is meant.
  if (is_asked || device.sheet || options.vram_bytes > 0) {
    device.is_gpu = true;
    device.is_here = !device.sheet && cuda_support().n_gpus > 0;
    return device;
  }
  device.is_gpu = choose_device(options).cuda.has_value();
  device.is_here = true;
  return device;
}

ForecastBudget
budget_of(const CommonOptions& options, const PlannedDevice& device, const ModelConfig& config) {
  ForecastBudget budget;
  budget.ram_bytes = options.ram_bytes > 0 ? options.ram_bytes : default_ram_budget();
  if (device.is_gpu) {
    budget.vram_bytes = options.vram_bytes;
    if (budget.vram_bytes == 0 && device.sheet) {
      budget.vram_bytes = default_vram_budget(device.sheet->memory_bytes);
    } else if (budget.vram_bytes == 0 && device.is_here) {
      budget.vram_bytes = default_vram_budget(open_device(options)->free_bytes());
    } else if (budget.vram_bytes == 0) {
      fail(
          ErrorKind::usage,
          "--vram is missing: there is no GPU here to ask ({}); give --vram SIZE or --gpu NAME",
          cuda_support().why_not);
    }
  }
  budget.max_sequences = options.max_sequences;
  budget.source = options.source;
  const uint32_t own = config.context_tokens > 0 ? config.context_tokens : kContextWhenUnknown;
  budget.context_tokens = options.context_tokens > 0 ? options.context_tokens : own;
  if (config.context_tokens > 0 && budget.context_tokens > own) {
    fail(
        ErrorKind::usage, "--context {}: the model was made for at most {} tokens",
        budget.context_tokens, own);
  }
  return budget;
}

MachineRates rates_of(
    const CommonOptions& options,
    const Arguments& arguments,
    const PlannedDevice& device,
    const PlannedModel& model) {
  MachineRates rates;
  if (const auto file = arguments.find("rates")) {
    rates = parse_rates(read_whole_file(*file, ErrorKind::usage), *file);
  }
  const auto take = [&](double given, double& rate, const char* name, const char* option) {
    if (given <= 0) return;
    rate = given;
    rates.set_origin(name, option);
  };
  take(options.link_rate, rates.link_rate, "link", "--link-rate");
  take(options.disk_rate, rates.disk_rate, "disk", "--disk-rate");
  const double memory_rate = find_rate(arguments, "vram-rate");
  const double flops = find_flops(arguments);
  // Where somebody says what a machine does, curves of another would say otherwise.
  const bool is_told = memory_rate > 0 || flops > 0 || device.sheet;
  const auto forget_curves = [&] {
    rates.linear.clear();
    rates.linear_streamed.clear();
    rates.repack_rate = rates.attention_rate = rates.attention_flops = 0;
  };
  if (is_told) forget_curves();
  if (device.sheet) {
    rates.memory_rate = rates.flops = 0;
    rates.device.clear();
  }
  take(memory_rate, rates.memory_rate, "memory", "--vram-rate");
  take(flops, rates.flops, "flops", "--flops");
  if (device.sheet) take_sheet(*device.sheet, rates);
  if (rates.memory_rate > 0 && rates.flops > 0) return rates;
  if (device.is_here) {
    measure_operators(options, model, rates);
    if (is_told) forget_curves();
    take(memory_rate, rates.memory_rate, "memory", "--vram-rate");
    take(flops, rates.flops, "flops", "--flops");
  } else {
    take_sheet(*find_gpu_sheet(kAssumedGpu), rates);
    log_info(
        "the GPU is taken as an {}: it is not here, and neither --gpu NAME, --rates FILE, nor "
        "--vram-rate and --flops tell what it does",
        kAssumedGpu);
  }
  return rates;
}

std::unique_ptr<Forecast> forecast_with_rates(
    const ForecastModel& model,
    const ForecastBudget& budget,
    const CommonOptions& options,
    const PlannedDevice& device,
    const std::string& model_file,
    MachineRates& rates) {
  auto forecast = choose_forecast(model, budget, rates);
  if (forecast->lacks_link_rate()) {
    if (!device.is_here) {
      fail(
          ErrorKind::usage,
          "the rate of the link is missing: {} cross it in a sweep. Measure it on that machine "
          "with `nightsweep bench links --rates FILE` and give --rates FILE here, or give "
          "--link-rate (PCIe 4.0 x16: 25GB/s, 3.0 x16: 12.5GB/s, 3.0 x8: 6.5GB/s)",
          size_text(forecast->placement().link_bytes));
    }
    rates.link_rate = probe_link(*open_device(options)).to_device;
    rates.set_origin("link", "measured here");
    forecast = choose_forecast(model, budget, rates);
  }
  if (forecast->lacks_disk_rate()) {
    if (model_file.empty()) {
      fail(
          ErrorKind::usage,
          "the rate of the disk is missing: {} are read in a sweep. Measure it with `nightsweep "
          "bench links --rates FILE` and give --rates FILE here, or give --disk-rate (an NVMe "
          "drive "
          "on PCIe 3.0: 3.35GB/s, on 4.0: 7GB/s)",
          size_text(forecast->placement().disk_bytes));
    }
    rates.disk_rate = probe_disk(model_file, {kReadsInFlight}).best();
    rates.set_origin("disk", "measured here");
    forecast = choose_forecast(model, budget, rates);
  }
  return forecast;
}

}  // namespace nightsweep
