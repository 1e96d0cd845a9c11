#include "runner/command.h"
#include "runner/kernel_bench_command.h"
#include "runner/link_bench.h"
#include "runner/planning.h"
#include "runner/sweep_bench.h"
#include "runner/text_bench.h"

namespace nightsweep {

namespace {

int bench(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  const std::string& what = arguments.operands().front();
  if (what == "links") return bench_links(arguments);
  if (what == "sweep") return bench_sweep(arguments);
  if (what == "kernels") return bench_kernels(arguments);
  if (what == "tokenize") return bench_tokenize(arguments);
  if (what == "render") return bench_render(arguments);
  fail(
      ErrorKind::usage, "bench: expected links, sweep, kernels, tokenize or render, found '{}'",
      what);
}

}  // namespace

Command make_bench_command() {
  std::vector<OptionSpec> options = {
      {.name = "prompt", .value = "N", .help = "prompt tokens a sequence (default 32)"},
      {.name = "generate", .value = "N", .help = "generated tokens a sequence (default 64)"},
      {.name = "batch", .value = "LIST", .help = "sequences at once, or rows of kernels: 1,16,64"},
      {.name = "only",
       .value = "TEXT",
       .help = "kernels: models (8B Q8_0) or attention with this in their names"},
      {.name = "shape-file",
       .value = "FILE",
       .help =
           "sweep: where the weights of --shape are written, and kept (default: a temporary file)"},
      {.name = "svg", .value = "FILE", .help = "sweep: the cases as a picture"},
      {.name = "text-file",
       .value = "FILE",
       .help = "tokenize: this text in place of made-up prose"},
      {.name = "template",
       .value = "FILE",
       .help = "render: a Jinja template in place of a model's"},
  };
  for (OptionSpec& option : planning_options())
    options.push_back(std::move(option));
  for (OptionSpec& option : engine_options()) {
    if (option.name != "batch") options.push_back(std::move(option));
  }
  return {
      .name = "bench",
      .summary = "measure link, disk and operators; sweeps against `plan`; what text costs",
      .usage = "links|sweep|kernels|tokenize|render [--model MODEL | --shape SHAPE:TYPE] [options]",
      .example = "nightsweep bench sweep --model model.gguf --batch 1,16,64 --json",
      .options = join({options, {json_option()}, general_options()}),
      .min_positionals = 1,
      .max_positionals = 1,
      .run = bench};
}

}  // namespace nightsweep
