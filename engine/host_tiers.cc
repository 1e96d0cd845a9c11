#include "engine/host_tiers.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/placement.h"

namespace nightsweep {

namespace {

// Below it the page cache does not have the model: reading past it is faster and disturbs nobody.
constexpr double kCachedEnough = 0.98;

std::string percent(double share) {
  return format("{:.0f}%", 100 * share);
}

}  // namespace

HostTiers::HostTiers(
    const GgufModel& model,
    const std::vector<WeightSlice>& slices,
    const StreamSchedule& schedule,
    Device& device,
    const Options& options,
    const FileReaderFactory& open_reader)
    : slices_(slices), schedule_(schedule), device_(device) {
  const bool may_register = options.source == "auto" || options.source == "registered";
  if (may_register && try_registered(model, options)) return;
  open_loader(model, options, open_reader);
}

// kept_ tells loader_ of its pieces.
HostTiers::~HostTiers() {
  if (kept_ != nullptr) kept_->stop();
}

bool HostTiers::try_registered(const GgufModel& model, const Options& options) {
  const bool is_forced = options.source == "registered";
  std::vector<FileSpan> spans(model.paths().size());
  for (const WeightSlice& slice : slices_) {
    for (const WeightExtent& extent : slice.extents) {
      FileSpan& span = spans[extent.file];
      const bool is_first = span.size_bytes() == 0;
      span.begin = is_first ? extent.offset : std::min(span.begin, extent.offset);
      span.end = std::max(span.end, extent.offset + extent.size_bytes);
    }
  }
  uint64_t total_bytes = 0;
  for (const FileSpan& span : spans)
    total_bytes += span.size_bytes();

  FileSet files = FileSet::open(model.paths(), model.file_bytes(), 0, model.file_identities());
  try {
    const uint64_t available_bytes = available_ram();
    if (total_bytes > options.memory_bytes) {
      fail(
          ErrorKind::device, "the files' {} are more than the {} of --ram", size_text(total_bytes),
          size_text(options.memory_bytes));
    }
    if (total_bytes + kHostMarginBytes > available_bytes) {
      fail(
          ErrorKind::device,
          "the files' {} would be locked, {} are available and other programs keep {}",
          size_text(total_bytes), size_text(available_bytes), size_text(kHostMarginBytes));
    }
    for (uint32_t file = 0; !is_forced && file < spans.size(); ++file) {
      const double share = cached_share(files, file, spans[file]);
      if (share < kCachedEnough) {
        fail(ErrorKind::device, "the page cache has {} of {}", percent(share), files.path(file));
      }
    }
    mapping_ = std::make_unique<HostMapping>(files, spans, device_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    if (is_forced) {
      fail(
          ErrorKind::device, "--source registered: {} (ulimit -l is {}); give --source auto",
          error.what(), locked_memory_limit_text());
    }
    reason_ = format("not registered: {}", error.what());
    return false;
  }
  mapped_files_ = std::move(files);
  files_ = &mapped_files_;
  for (const WeightSlice& slice : slices_) {
    mapped_.emplace_back();
    for (const WeightExtent& extent : slice.extents)
      mapped_.back().push_back(mapping_->at(extent.file, extent.offset));
  }
  registered_bytes_ = total_bytes;
  reason_ = is_forced ? "as asked for" : "the page cache has the model and --ram holds it";
  return true;
}

void HostTiers::open_loader(
    const GgufModel& model,
    const Options& options,
    const FileReaderFactory& open) {
  std::vector<bool> streams;  // beyond the first sweep
  for (uint32_t i = 0; i < slices_.size(); ++i)
    streams.push_back(schedule_.passes(i, options.first_sweep + 1));
  const HostShare share = share_host_memory(slices_, streams, options.memory_bytes, options.source);
  std::vector<uint64_t> sizes_bytes(slices_.size(), 0);  // of those that are kept
  for (size_t i = 0; i < slices_.size(); ++i) {
    if (share.is_kept[i]) sizes_bytes[i] = ring_bytes_of(slices_[i]);
  }
  kept_ = std::make_unique<KeptMemory>(
      device_, sizes_bytes, KeptMemory::Options{.must_keep_all = options.source == "pinned"});
  ring_ = device_.allocate_host(share.ring_bytes);
  const std::span ring(ring_->data(), share.ring_bytes);
  reader_ = open(
      {.paths = model.paths(),
       .file_bytes = model.file_bytes(),
       .identities = model.file_identities(),
       .source = reader_source(options.source),
       .depth = kReadsInFlight});
  files_ = &reader_->files();
  measured_disk_rate_ =
      measure_disk_rate(*reader_, ring, slices_, schedule_, options.first_sweep, options.disk_rate);
  loader_ = std::make_unique<RingLoader>(
      *reader_, ring, slices_, schedule_,
      RingLoader::Options{
          .first_sweep = options.first_sweep,
          .bytes_per_s = options.disk_rate,
          .kept = kept_.get()});
  if (const std::string& why = loader_->why_not_registered(); !why.empty())
    reason_ += (reason_.empty() ? "" : "; ") + why;
  kept_->start([this] { loader_->look_again(); });
}

void HostTiers::begin_sweep(uint64_t sweep) {
  if (loader_ != nullptr) loader_->begin_sweep(sweep);
}

const std::vector<std::byte*>& HostTiers::acquire(uint32_t index) {
  return mapping_ != nullptr ? mapped_[index] : loader_->acquire(index);
}

void HostTiers::release(uint32_t index) {
  if (loader_ != nullptr) loader_->release(index);
}

RingLoader::Stats HostTiers::stats() const {
  return loader_ == nullptr ? RingLoader::Stats{} : loader_->stats();
}

std::string HostTiers::description() const {
  return mapping_ != nullptr ? "registered page cache" : reader_->description();
}

}  // namespace nightsweep
