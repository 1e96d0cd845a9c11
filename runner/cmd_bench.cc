#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/units.h"
#include "runner/command.h"
#include "runner/model_source.h"
#include "runner/output.h"
#include "runner/text_bench.h"

namespace nightsweep {

namespace {

struct SweepFigures {
  uint32_t n_sequences = 0;
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
  double decode_sweep_s = 0;  // mean
  uint64_t streamed_bytes = 0;
  double disk_share = 0;
  double disk_rate = 0;  // bytes a second, measured at the start
  uint64_t copied_bytes = 0;
  double link_share = 0;
  double link_rate = 0;
  double wait_share = 0;  // of all sweeps' time: computing stood still for want of weights
};

std::vector<uint32_t> parse_batches(const std::string& text) {
  std::vector<uint32_t> sizes;
  for (size_t at = 0; at <= text.size();) {
    size_t end = std::min(text.find(',', at), text.size());
    sizes.push_back(
        static_cast<uint32_t>(parse_count(text.substr(at, end - at), "--batch", 1, 65536)));
    at = end + 1;
  }
  return sizes;
}

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

// All sequences together: every prompt first, then one token a sweep and sequence.
SweepFigures measure(Engine* engine, uint32_t n_sequences, uint32_t n_prompt, uint32_t n_generate) {
  for (uint32_t s = 0; s < n_sequences; ++s) {
    SequenceRequest request;
    request.handle = s + 1;
    request.prompt = fixed_prompt(s, n_prompt, engine->config().n_vocab);
    request.sampling.temperature = 0;
    request.max_tokens = n_generate + 1;
    request.ignore_eos = true;
    engine->submit(std::move(request));
  }
  const EngineStats before = engine->stats();
  SweepFigures figures{.n_sequences = n_sequences};
  uint64_t prefill_rows = 0;
  uint64_t decode_rows = 0;
  uint64_t decode_sweeps = 0;
  double prefill_s = 0;
  double decode_s = 0;
  while (engine->n_active() > 0) {
    auto begun = std::chrono::steady_clock::now();
    StepReport report = engine->step();
    double taken_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (report.evictions > 0) {
      fail(
          ErrorKind::device,
          "bench: {} sequences of {} tokens do not fit the memory for KV (give more --ram or "
          "--vram)",
          n_sequences, n_prompt + n_generate + 1);
    }
    if (report.rows == 0) continue;
    // A mixed sweep counts for both by its rows.
    double prefill_part = static_cast<double>(report.prefill_rows) / report.rows;
    prefill_rows += report.prefill_rows;
    decode_rows += report.decode_rows;
    prefill_s += taken_s * prefill_part;
    decode_s += taken_s * (1 - prefill_part);
    if (report.prefill_rows == 0) ++decode_sweeps;
  }
  if (prefill_s > 0) figures.prefill_tokens_per_s = static_cast<double>(prefill_rows) / prefill_s;
  if (decode_s > 0) figures.decode_tokens_per_s = static_cast<double>(decode_rows) / decode_s;
  if (decode_sweeps > 0) figures.decode_sweep_s = decode_s / static_cast<double>(decode_sweeps);
  EngineStats stats = engine->stats();
  stats.stream.streamed_bytes -= before.stream.streamed_bytes;
  stats.stream.copied_bytes -= before.stream.copied_bytes;
  stats.stream.wait_s -= before.stream.wait_s;
  stats.step_s -= before.step_s;
  figures.streamed_bytes = stats.stream.streamed_bytes;
  figures.disk_share = disk_share(stats);
  figures.disk_rate = stats.stream.measured_disk_rate;
  figures.copied_bytes = stats.stream.copied_bytes;
  figures.link_share = link_share(stats);
  figures.link_rate = stats.stream.measured_link_rate;
  if (stats.step_s > 0) figures.wait_share = stats.stream.wait_s / stats.step_s;
  return figures;
}

std::string figures_text(const SweepFigures& figures, bool json) {
  if (json) {
    Json object = Json::Object{};
    object.set("sequences", figures.n_sequences);
    object.set("prefill_tps", figures.prefill_tokens_per_s);
    object.set("decode_tps", figures.decode_tokens_per_s);
    object.set("decode_sweep_s", figures.decode_sweep_s);
    object.set("streamed_bytes", figures.streamed_bytes);
    object.set("disk_share", figures.disk_share);
    object.set("disk_rate", figures.disk_rate);
    object.set("copied_bytes", figures.copied_bytes);
    object.set("link_share", figures.link_share);
    object.set("link_rate", figures.link_rate);
    object.set("wait_share", figures.wait_share);
    return object.dump() + "\n";
  }
  std::string text = format(
      "{:4} sequences: prefill {:8.1f}  decode {:8.1f} tokens/s", figures.n_sequences,
      figures.prefill_tokens_per_s, figures.decode_tokens_per_s);
  if (figures.copied_bytes > 0) {
    text += format(
        "  link {} ({:.0f}% of {})", size_text(figures.copied_bytes), 100 * figures.link_share,
        rate_text(figures.link_rate));
  }
  if (figures.streamed_bytes > 0) {
    text += format(
        "  disk {} ({:.0f}% of {}), waited {:.0f}%", size_text(figures.streamed_bytes),
        100 * figures.disk_share, rate_text(figures.disk_rate), 100 * figures.wait_share);
  }
  return text + "\n";
}

int bench(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  const std::string& what = arguments.operands().front();
  if (what == "tokenize") return bench_tokenize(arguments);
  if (what == "render") return bench_render(arguments);
  if (what != "sweep") {
    fail(
        ErrorKind::usage,
        "bench: expected sweep, tokenize or render, found '{}' (others are not in this version)",
        what);
  }
  // Here --batch is a list, so it is taken out of the options that mean the same everywhere.
  CommonOptions options = begin_command(arguments.without("batch"));
  std::vector<uint32_t> batches = parse_batches(arguments.find("batch").value_or("1,16,64"));
  auto count = [&](const char* name, uint32_t otherwise) {
    auto text = arguments.find(name);
    if (!text) return otherwise;
    return static_cast<uint32_t>(parse_count(*text, std::string("--") + name, 1, 1 << 20));
  };
  uint32_t n_prompt = count("prompt", 32);
  uint32_t n_generate = count("generate", 64);
  auto model = PromptModel::open(chosen_model(options), options.context_tokens);
  if (options.context_tokens == 0) options.context_tokens = n_prompt + n_generate + 1;
  if (n_prompt + n_generate + 1 > std::min(options.context_tokens, model->context_tokens())) {
    fail(
        ErrorKind::usage, "--prompt {} and --generate {} do not fit a context of {} tokens",
        n_prompt, n_generate, std::min(options.context_tokens, model->context_tokens()));
  }
  // On the CPU memory is shared otherwise for every batch; a GPU holds all weights in any case, and
  // loads them once.
  bool loads_once = choose_device(options).cuda.has_value();
  std::unique_ptr<Engine> engine;
  for (uint32_t n_sequences : batches) {
    if (engine == nullptr || !loads_once) {
      engine.reset();
      options.max_sequences = loads_once ? *std::ranges::max_element(batches) : n_sequences;
      engine = open_engine(model->gguf(), options);
    }
    SweepFigures figures = measure(engine.get(), n_sequences, n_prompt, n_generate);
    Stdout().write(figures_text(figures, options.json));
  }
  return 0;
}

}  // namespace

Command make_bench_command() {
  std::vector<OptionSpec> options = {
      {.name = "prompt", .value = "N", .help = "prompt tokens a sequence (default 32)"},
      {.name = "generate", .value = "N", .help = "generated tokens a sequence (default 64)"},
      {.name = "batch", .value = "LIST", .help = "sequences at once: 1,16,64"},
      {.name = "text-file",
       .value = "FILE",
       .help = "tokenize: this text in place of made-up prose"},
      {.name = "template",
       .value = "FILE",
       .help = "render: a Jinja template in place of a model's"},
  };
  for (OptionSpec& option : engine_options()) {
    if (option.name != "batch") options.push_back(std::move(option));
  }
  return {
      .name = "bench",
      .summary = "measure prefill and decode of the engine, or what text costs on one core",
      .usage = "sweep|tokenize|render --model MODEL [--batch 1,16,64] [options]",
      .example = "nightsweep bench sweep --model model.gguf --batch 1,16,64 --json",
      .options = join({options, {json_option()}, general_options()}),
      .min_positionals = 1,
      .max_positionals = 1,
      .run = bench};
}

}  // namespace nightsweep
