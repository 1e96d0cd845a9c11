#include "runner/link_bench.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/machine_probe.h"
#include "engine/synthetic_model.h"
#include "runner/command.h"
#include "runner/model_source.h"
#include "runner/output.h"
#include "runner/passing_file.h"
#include "runner/planning.h"

namespace nightsweep {

namespace {

const std::vector<uint32_t> kDepths = {1, 2, 4, 8, 16, 32};
constexpr uint64_t kProbeFileBytes = uint64_t{1} << 30;

// Something to read where no model is: removed at the end.
class ProbeFile {
 public:
  explicit ProbeFile(const std::string& folder)
      : file_(
            (std::filesystem::path(folder) / format("nightsweep-{}.probe", ::getpid())).string()) {
    const FileDescriptor file(
        ::open(path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.is_open()) fail_errno(ErrorKind::storage, errno, path());
    // No disk finds anything to compress or to share in it.
    const std::string bytes = synthetic_blocks(QuantType::q8_0, 32 << 20);
    for (uint64_t done = 0; done < kProbeFileBytes; done += bytes.size())
      write_fully(file.value(), bytes, path());
    if (::fsync(file.value()) != 0) fail_errno(ErrorKind::storage, errno, path());
  }
  const std::string& path() const { return file_.path(); }

 private:
  PassingFile file_;
};

std::string curve_text(
    const char* name,
    const std::map<QuantType, std::vector<LinearRate>>& curves) {
  std::string text;
  for (const auto& [type, curve] : curves) {
    text += format("  {:9} {:5}", name, quant_traits(type).name);
    for (const LinearRate& rate : curve)
      text += format("  {}: {:.3g}", rate.rows, 2e-12 * rate.rows * rate.weights_per_s);
    text += "\n";
  }
  return text;
}

std::string links_text(const MachineRates& rates, const LinkProbe* link, const DiskProbe& disk) {
  std::string text = rates.device + "\n";
  if (link != nullptr) {
    text += format(
        "link to the GPU {} (page-locked), back {}; page-locking {:.2f} s a GiB\n",
        rate_text(link->to_device), rate_text(link->from_device), link->pinning_s_per_gib);
    text += link->registered > 0
                ? format(
                      "from the page cache, registered, {}; registering {:.2f} s a GiB\n",
                      rate_text(link->registered), link->registering_s_per_gib)
                : format("the page cache cannot be registered: {}\n", link->why_not_registered);
  }
  text += format("disk ({}), reads of 1 MiB in flight:", disk.source);
  for (const DiskProbe::Depth& depth : disk.depths)
    text += format("  {}: {}", depth.n_reads, rate_text(depth.bytes_per_s));
  text += format(
      "\nmemory {} at one row; peak {:.3g} T operations/s; attention {} of KV, {:.3g} T "
      "operations/s "
      "of a prompt; an operator at least {:.1f} us, attention {:.1f} us\n",
      rate_text(rates.memory_rate), rates.flops / 1e12, rate_text(rates.attention_rate),
      rates.attention_flops / 1e12, 1e6 * rates.operator_s, 1e6 * rates.attention_s);
  if (rates.repack_rate > 0) {
    text += format("repacking of what streams {}\n", rate_text(rates.repack_rate));
  }
  text += "T operations/s of linear operators, by type and rows:\n";
  text += curve_text("resident", rates.linear);
  text += curve_text("streamed", rates.linear_streamed);
  return text;
}

Json links_json(const MachineRates& rates, const LinkProbe* link, const DiskProbe& disk) {
  Json object = rates_json(rates);
  if (link != nullptr) {
    object.set("link_back_rate", link->from_device);
    object.set("pinning_s_per_gib", link->pinning_s_per_gib);
    if (link->registered > 0) {
      object.set("registered_rate", link->registered);
      object.set("registering_s_per_gib", link->registering_s_per_gib);
    }
  }
  object.set("disk_source", disk.source);
  Json::Array depths;
  for (const DiskProbe::Depth& depth : disk.depths) {
    Json entry = Json::Object{};
    entry.set("reads", depth.n_reads);
    entry.set("rate", depth.bytes_per_s);
    depths.push_back(std::move(entry));
  }
  object.set("disk", std::move(depths));
  return object;
}

}  // namespace

int bench_links(const Arguments& arguments) {
  const CommonOptions options = begin_command(arguments.without("batch"));
  const auto rates_path = arguments.find("rates");
  if (rates_path) AtomicFile::check(*rates_path);
  ProbeShape shape;
  shape.kv_type = options.kv_type;
  std::string file;
  if (!options.model.empty() || arguments.has("shape")) {
    const PlannedModel model = open_planned_model(options, arguments);
    shape = probe_shape_of(*model.gguf, model.config, options.kv_type);
    file = model.file;
  }
  std::optional<ProbeFile> probe;
  if (file.empty()) {
    probe.emplace(std::filesystem::current_path().string());
    file = probe->path();
  }
  auto device = open_device(options);
  MachineRates rates = probe_operators(*device, shape);
  std::optional<LinkProbe> link;
  if (!device->shares_host_memory()) {
    link = probe_link(*device);
    probe_registered(*device, file, *link);
    rates.link_rate = link->to_device;
  }
  device.reset();
  const DiskProbe disk = probe_disk(file, kDepths);
  rates.disk_rate = disk.best();
  const LinkProbe* const link_found = link ? &*link : nullptr;
  const Json json = links_json(rates, link_found, disk);
  if (rates_path) {
    AtomicFile out(*rates_path, 0644);
    out.write(json.dump_pretty() + "\n");
    out.commit();
  }
  Stdout().write(options.json ? json.dump() + "\n" : links_text(rates, link_found, disk));
  return 0;
}

}  // namespace nightsweep
