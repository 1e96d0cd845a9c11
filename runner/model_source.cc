#include "runner/model_source.h"

#include <cmath>
#include <filesystem>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "engine/inspect.h"

namespace nightsweep {

namespace {

constexpr uint64_t kMostGpus = 1024;
constexpr const char* kTemplateKey = "tokenizer.chat_template";

std::string absolute_path(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// The model's own limit, lowered by --context.
uint32_t context_of(const GgufModel& gguf, const ModelConfig& config, uint32_t asked) {
  uint32_t own = config.context_tokens;
  if (own == 0 && asked == 0) {
    log_warning(
        "{}: the file does not tell the context, {} tokens are taken (change it with --context)",
        gguf.name(), kContextWhenUnknown);
    return kContextWhenUnknown;
  }
  if (own != 0 && asked > own) {
    fail(ErrorKind::usage, "--context {}: {} goes up to {} tokens", asked, gguf.name(), own);
  }
  return asked != 0 ? asked : own;
}

// What loading would refuse is refused before anything is queued.
ModelConfig require_runnable(const GgufModel& gguf) {
  InspectReport report = inspect_model(gguf);
  if (!report.why_not.empty()) fail(ErrorKind::model, "{}", report.why_not);
  return *report.config;
}

}  // namespace

std::optional<ModelRef> find_model(const ModelTable& models, const std::string& file_or_name) {
  auto named = models.find(file_or_name);
  if (named != models.end()) {
    return ModelRef{.path = absolute_path(named->second.file), .defaults = named->second.defaults};
  }
  std::error_code ignored;
  if (file_or_name.empty() || !std::filesystem::is_regular_file(file_or_name, ignored)) {
    return std::nullopt;
  }
  return ModelRef{.path = absolute_path(file_or_name), .defaults = {}};
}

ModelRef require_model(const ModelTable& models, const std::string& file_or_name) {
  auto found = find_model(models, file_or_name);
  if (!found) {
    fail(
        ErrorKind::model,
        "{}: there is no such file, and no model of that name in [models] of the configuration",
        file_or_name);
  }
  return *found;
}

ModelRef chosen_model(const CommonOptions& options) {
  if (options.model.empty()) fail(ErrorKind::usage, "expected --model FILE (a GGUF file)");
  return require_model(options.models, options.model);
}

std::unique_ptr<PromptModel> PromptModel::open(const ModelRef& ref, uint32_t context_tokens) {
  auto model = std::make_unique<PromptModel>();
  model->ref_ = ref;
  model->gguf_ = std::make_shared<const GgufModel>(GgufModel::open(ref.path));
  model->context_tokens_ =
      context_of(*model->gguf_, require_runnable(*model->gguf_), context_tokens);
  model->tokenizer_ = Tokenizer::from_gguf(*model->gguf_);
  if (const std::string* source = model->gguf_->find_string(kTemplateKey)) {
    try {
      model->chat_template_ = ChatTemplate::compile(*source);
    } catch (const TemplateError& error) {
      model->no_template_ = format(
          "the chat template of {} is not understood: {}", model->gguf_->name(), error.what());
    }
  } else {
    model->no_template_ = format("{} has no chat template", model->gguf_->name());
  }
  model->maker_ = std::make_unique<RequestMaker>(model->maker_for(model->context_tokens_));
  return model;
}

RequestMaker PromptModel::maker_for(uint32_t context_tokens) const {
  return {*tokenizer_, chat_template_ ? &*chat_template_ : nullptr, no_template_, context_tokens};
}

DeviceChoice choose_device(const CommonOptions& options) {
  if (options.device == "cpu") return {};
  CudaSupport support = cuda_support();
  if (options.device == "auto") {
    // What only the CPU does was asked for by name: that names the device too.
    if (options.math == MathMode::exact) return {.why = " (--math exact is the CPU's)"};
    if (options.kv_type == KvType::f32) return {.why = " (--kv f32 is the CPU's)"};
    if (support.n_gpus == 0) return {.why = format(" ({})", support.why_not)};
    return {.cuda = 0, .why = ""};
  }
  DeviceChoice choice{.cuda = 0, .why = ""};
  if (options.device.starts_with("cuda:")) {
    choice.cuda = static_cast<uint32_t>(
        parse_count(options.device.substr(5), "--device cuda:N", 0, kMostGpus));
  }
  if (support.n_gpus == 0) {
    fail(ErrorKind::device, "--device {}: {} (use --device cpu)", options.device, support.why_not);
  }
  if (options.math == MathMode::exact) {
    fail(ErrorKind::usage, "--math exact: only --device cpu has it");
  }
  if (options.kv_type == KvType::f32) {
    fail(ErrorKind::usage, "--kv f32: a GPU keeps keys and values as f16 or q8_0");
  }
  return choice;
}

std::string device_name(const CommonOptions& options) {
  DeviceChoice choice = choose_device(options);
  return choice.cuda ? format("cuda:{}", *choice.cuda) : "cpu";
}

std::unique_ptr<Device> open_device(const CommonOptions& options) {
  DeviceChoice choice = choose_device(options);
  std::unique_ptr<Device> device;
  if (choice.cuda) {
    if (options.n_threads != 0) log_warning("--threads has no effect on a GPU");
    device = make_cuda_device({.index = *choice.cuda});
  } else {
    if (options.vram_bytes != 0) log_warning("--vram has no effect on device cpu");
    if (options.link_rate != 0) log_warning("--link-rate has no effect on device cpu");
    if (options.source == "pinned" || options.source == "registered") {
      fail(
          ErrorKind::usage,
          "--source {}: that is memory from which a GPU copies; on device cpu weights are "
          "resident, "
          "or come by --source direct or mmap",
          options.source);
    }
    device = make_cpu_device(
        {.math = options.math, .n_threads = options.n_threads, .instruction_set = {}});
  }
  log_info("device: {}{}", device->description(), choice.why);
  return device;
}

void self_test(Device& device) {
  constexpr uint32_t kDim = 256;
  std::vector<float> x(kDim, 2.0F);
  std::vector<float> weight(kDim, 3.0F);
  auto input = device.allocate(kDim * sizeof(float));
  auto factors = device.allocate(kDim * sizeof(float));
  auto output = device.allocate(kDim * sizeof(float));
  device.reserve(1, kDim);
  device.upload(x.data(), kDim * sizeof(float), input->data());
  device.upload(weight.data(), kDim * sizeof(float), factors->data());
  device.rms_norm(input->floats(), factors->floats(), 0.0F, 1, kDim, output->floats());
  const float* found = device.read_back(output->floats(), kDim);
  for (uint32_t i = 0; i < kDim; ++i) {
    if (!(std::abs(found[i] - 3.0F) < 1e-3F)) {
      fail(
          ErrorKind::device,
          "{}: the self-test expected 3, found {} (check the device and its "
          "driver)",
          device.description(), found[i]);
    }
  }
}

EngineOptions engine_options_of(const CommonOptions& options) {
  EngineOptions engine;
  engine.ram_bytes = options.ram_bytes;
  engine.vram_bytes = options.vram_bytes;
  engine.max_sequences = options.max_sequences;
  engine.context_tokens = options.context_tokens;
  engine.kv_type = options.kv_type;
  engine.disk_rate = options.disk_rate;
  engine.verify_numerics = options.verify_numerics;
  engine.link_rate = options.link_rate;
  engine.source = options.source;
  return engine;
}

std::unique_ptr<Engine> open_engine(
    std::shared_ptr<const GgufModel> gguf,
    const CommonOptions& options,
    uint32_t most_kv_pages) {
  EngineOptions engine = engine_options_of(options);
  engine.most_kv_pages = most_kv_pages;
  return Engine::open(std::move(gguf), open_device(options), engine);
}

double link_share(const EngineStats& stats) {
  if (stats.stream.measured_link_rate <= 0 || stats.step_s <= 0) return 0;
  return static_cast<double>(stats.stream.copied_bytes) / stats.step_s /
         stats.stream.measured_link_rate;
}

double disk_share(const EngineStats& stats) {
  const uint64_t read_bytes = stats.stream.streamed_bytes + stats.stream.filled_bytes;
  if (read_bytes == 0 || stats.step_s <= 0) return 0;
  if (stats.stream.measured_disk_rate <= 0) return 0;
  return static_cast<double>(read_bytes) / stats.step_s / stats.stream.measured_disk_rate;
}

std::string stream_text(const EngineStats& stats) {
  const StreamStats& stream = stats.stream;
  std::string text = format(
      "{} of weights, {} resident", size_text(stats.weight_bytes),
      size_text(stream.resident_bytes));
  if (stream.host_bytes > 0) text += format(", {} kept in RAM", size_text(stream.host_bytes));
  if (stream.registered_bytes > 0) {
    text += format(", {} locked in the page cache", size_text(stream.registered_bytes));
  }
  if (stream.copied_bytes > 0 && stats.step_s > 0) {
    text += format(
        ", {} over the link at {}, {:.0f}% of its {}", size_text(stream.copied_bytes),
        rate_text(static_cast<double>(stream.copied_bytes) / stats.step_s), 100 * link_share(stats),
        rate_text(stream.measured_link_rate));
  }
  if (stream.n_shrinks > 0) {
    text += format(
        ", {} times memory of the GPU left to others, {} pieces taken back", stream.n_shrinks,
        stream.n_grows);
  }
  if (!stream.source_reason.empty()) text += format(" ({})", stream.source_reason);
  const uint64_t read_bytes = stream.streamed_bytes + stream.filled_bytes;
  if (stream.streamed_bytes == 0) {
    return text + format(", {} read from the disk, once", size_text(stream.filled_bytes));
  }
  const double rate = stats.step_s > 0 ? static_cast<double>(read_bytes) / stats.step_s : 0;
  text += format(
      ", {} streamed ({}), {} of it to stay, at {}", size_text(read_bytes), stream.source,
      size_text(stream.filled_bytes), rate_text(rate));
  if (stream.measured_disk_rate > 0) {
    text += format(
        ", {:.0f}% of the disk's {}", 100 * disk_share(stats),
        rate_text(stream.measured_disk_rate));
  }
  return text;
}

}  // namespace nightsweep
