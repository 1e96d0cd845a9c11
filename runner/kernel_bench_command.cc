#include "runner/kernel_bench_command.h"

#include <algorithm>

#include "base/units.h"
#include "kernels/kernel_bench.h"
#include "runner/command.h"
#include "runner/model_source.h"
#include "runner/output.h"

namespace nightsweep {

namespace {

const std::string kAttention = "attention";

// Lines of a table, or of JSON, as the times come.
class Printer final : public KernelBenchSink {
 public:
  Printer(const DeviceLimits& limits, bool json) : limits_(limits), json_(json) {}

  void take(const KernelTime& time) override {
    const double bytes_per_s = time.bytes / time.seconds;
    const double flops = time.flops / time.seconds;
    if (json_) {
      Json object = Json::Object{};
      object.set("group", std::string(time.group));
      object.set("model", time.model);
      object.set("name", time.name);
      object.set("rows", time.rows);
      object.set("us", 1e6 * time.seconds);
      object.set("bytes_per_s", bytes_per_s);
      object.set("flops", flops);
      if (limits_.bytes_per_s > 0)
        object.set("share_of_bandwidth", bytes_per_s / limits_.bytes_per_s);
      if (limits_.f16_flops > 0) object.set("share_of_flops", flops / limits_.f16_flops);
      object.set("calls_a_step", time.calls);
      Stdout().write(object.dump() + "\n");
      return;
    }
    std::string line = format(
        "{:<10} {:<34} {:<16} {:5} {:10.1f} us {:>13}{}", time.group, time.model, time.name,
        time.rows, 1e6 * time.seconds, rate_text(bytes_per_s),
        share_text(bytes_per_s, limits_.bytes_per_s));
    if (time.flops > 0) {
      line += format(" {:8.1f} TFLOP/s{}", 1e-12 * flops, share_text(flops, limits_.f16_flops));
    }
    Stdout().write(line + "\n");
  }

  void take(const StepShare& share) override {
    if (json_) {
      Json object = Json::Object{};
      object.set("group", "step");
      object.set("model", share.model);
      object.set("rows", share.rows);
      object.set("linear_us", 1e6 * share.linear_s);
      object.set("attention_us", 1e6 * share.attention_s);
      object.set("small_us", 1e6 * share.small_s);
      object.set("share_of_small", share.share_of_small());
      Stdout().write(object.dump() + "\n");
      return;
    }
    Stdout().write(format(
        "step       {:<34} {:<16} {:5} {:10.1f} us: linear {:.1f}, attention {:.1f}, everything "
        "else {:.1f} ({:.1f}%)\n",
        share.model, "", share.rows, 1e6 * (share.linear_s + share.attention_s + share.small_s),
        1e6 * share.linear_s, 1e6 * share.attention_s, 1e6 * share.small_s,
        100 * share.share_of_small()));
  }

 private:
  static std::string share_text(double rate, double limit) {
    return limit > 0 ? format(" {:5.1f}%", 100 * rate / limit) : std::string();
  }

  DeviceLimits limits_;
  bool json_;
};

}  // namespace

int bench_kernels(const Arguments& arguments) {
  const CommonOptions options = begin_command(arguments.without("batch"));
  KernelBenchOptions bench;
  bench.rows = parse_counts(arguments.find("batch").value_or("1,16,64,256"), "--batch", 1, 4096);
  const std::string wanted = arguments.find("only").value_or("");
  const auto is_wanted = [&](const std::string& name) {
    return name.find(wanted) != std::string::npos;
  };
  const std::vector<BenchModel> models = bench_models();
  if (!is_wanted(kAttention) &&
      std::ranges::none_of(models, [&](const BenchModel& m) { return is_wanted(m.name); })) {
    fail(
        ErrorKind::usage, "--only {}: expected a part of 8B Q4_K_M, 8B Q8_0, 70B Q4_K_M or {}",
        wanted, kAttention);
  }
  const auto device = open_device(options);
  uint32_t most_rows = std::ranges::max(bench.rows);
  uint32_t most_cols = 0;
  for (const BenchModel& model : models)
    most_cols = std::max(most_cols, model.ff_dim);
  for (const BenchAttention& shape : bench_attention_cases()) {
    most_rows = std::max(most_rows, shape.n_sequences);
    most_cols = std::max(most_cols, shape.n_heads * shape.head_dim);
  }
  device->reserve(most_rows, most_cols);
  Printer printer(device->limits(), options.json);
  for (const BenchModel& model : models) {
    if (is_wanted(model.name)) bench_model(*device, model, bench, printer);
  }
  if (is_wanted(kAttention)) {
    for (const BenchAttention& shape : bench_attention_cases()) {
      for (const KvType type : {KvType::f16, KvType::q8_0})
        printer.take(bench_attention(*device, shape, type, bench));
    }
  }
  return 0;
}

}  // namespace nightsweep
