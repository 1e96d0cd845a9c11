#include "engine/weight_stream.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/device_stream.h"
#include "engine/placement.h"
#include "engine/resident_slices.h"
#include "engine/ring_loader.h"
#include "engine/slice_views.h"

namespace nightsweep {

namespace {

// Staging where there is no ring: enough for all reads in flight while a slice is packed.
constexpr uint64_t kStagingBytes = 16 << 20;

class CpuWeightStream final : public WeightStream {
 public:
  CpuWeightStream(
      const GgufModel& model,
      const WeightPlan& plan,
      Device& device,
      const StreamOptions& options,
      const FileReaderFactory& open_reader);

  StreamStats stats() const override;

  void check_files() const override {
    if (reader_ != nullptr) reader_->files().check_unchanged();
  }

 protected:
  void begin_sweep(uint64_t sweep) override;
  void fetch(uint32_t slice) override;
  const std::vector<MatrixView>& matrices(uint32_t slice) const override {
    return resident_.holds(slice) ? resident_.matrices(slice) : leased_[slice];
  }
  void release(uint32_t slice) override {
    if (!resident_.holds(slice)) loader_->release(slice);
  }

 private:
  void check_ring(uint64_t ring_bytes) const;

  ResidentSlices resident_;
  StreamSchedule schedule_;
  std::vector<std::vector<MatrixView>> leased_;  // by slice of the plan
  double measured_disk_rate_ = 0;
  RingLoader::Stats read_;  // once there is no loader any more

  // Null when there is nothing left to read.
  std::unique_ptr<DeviceMemory> ring_memory_;
  // Declared in the order of use: the loader ends before the reader, the reader before the memory.
  std::unique_ptr<FileReader> reader_;
  std::unique_ptr<RingLoader> loader_;
};

CpuWeightStream::CpuWeightStream(
    const GgufModel& model,
    const WeightPlan& plan,
    Device& device,
    const StreamOptions& options,
    const FileReaderFactory& open_reader)
    : WeightStream(plan),
      resident_(plan, device, options.resident_bytes, options.resident_piece_bytes),
      schedule_(plan.slices.size()),
      leased_(plan.slices.size()) {
  check_source(options.source, device);
  for (uint32_t slice = 0; slice < plan.slices.size(); ++slice) {
    if (resident_.has_home(slice)) schedule_.set(slice, 1, false);
  }
  if (plan.slices.empty()) return;
  const bool has_streamed = schedule_.any_passes(1);
  if (has_streamed) check_ring(options.ring_bytes);

  reader_ = open_reader(
      {.paths = model.paths(),
       .file_bytes = model.file_bytes(),
       .identities = model.file_identities(),
       .source = options.source,
       .depth = kReadsInFlight});
  const uint64_t staging_bytes = std::max(min_ring_bytes(plan), kStagingBytes);
  ring_memory_ = device.allocate_host(
      has_streamed ? align_down(options.ring_bytes, kDirectAlignment) : staging_bytes);
  const std::span ring(ring_memory_->data(), ring_memory_->size_bytes());
  if (has_streamed) {
    measured_disk_rate_ =
        measure_disk_rate(*reader_, ring, plan.slices, schedule_, 1, options.disk_rate);
  }
  loader_ = std::make_unique<RingLoader>(
      *reader_, ring, plan.slices, schedule_,
      RingLoader::Options{.bytes_per_s = options.disk_rate});
}

void CpuWeightStream::check_ring(uint64_t ring_bytes) const {
  const uint64_t least_bytes = min_ring_bytes(plan_);
  if (ring_bytes >= least_bytes) return;
  fail(
      ErrorKind::device,
      "weight stream: a ring of {} is too small: this model needs {} (twice its largest slice); "
      "give more --ram",
      size_text(ring_bytes), size_text(least_bytes));
}

void CpuWeightStream::begin_sweep(uint64_t sweep) {
  if (loader_ == nullptr) return;
  if (sweep > 0 && resident_.holds_everything()) {
    read_ = loader_->stats();
    loader_.reset();
    reader_.reset();
    ring_memory_.reset();
    return;
  }
  loader_->begin_sweep(sweep);
}

void CpuWeightStream::fetch(uint32_t slice) {
  if (resident_.holds(slice)) return;
  const std::vector<std::byte*>& data = loader_->acquire(slice);
  if (resident_.has_home(slice)) {
    resident_.fill(slice, data, &Device::pack);
    loader_->release(slice);
    return;
  }
  const std::vector<WeightExtent>& extents = plan_.slices[slice].extents;
  leased_[slice].clear();
  for (size_t e = 0; e < extents.size(); ++e)
    leased_[slice].push_back(view_of(extents[e], data[e]));
}

StreamStats CpuWeightStream::stats() const {
  StreamStats stats;
  stats.resident_bytes = resident_.size_bytes();
  stats.sweeps = sweeps_;
  stats.source = "resident";
  const RingLoader::Stats read = loader_ == nullptr ? read_ : loader_->stats();
  stats.filled_bytes = read.filled_bytes;
  stats.streamed_bytes = read.read_bytes;
  stats.wait_s = read.wait_s;
  stats.read_busy_s = read.read_busy_s;
  if (loader_ == nullptr) return stats;
  stats.measured_disk_rate = measured_disk_rate_;
  stats.source = reader_->description();
  stats.source_reason = loader_->why_not_registered();
  return stats;
}

}  // namespace

uint64_t packed_bytes(const WeightPlan& plan, const DeviceSizes& device) {
  uint64_t total = 0;
  for (const WeightSlice& slice : plan.slices)
    total += packed_slice_bytes(slice, device);
  return total;
}

uint64_t min_ring_bytes(const WeightPlan& plan) {
  uint64_t largest = 0;
  for (const WeightSlice& slice : plan.slices)
    largest = std::max(largest, ring_bytes_of(slice));
  return 2 * largest;
}

WeightStream::Lease WeightStream::acquire(uint32_t slice) {
  if (slice != next_slice_) {
    fail(ErrorKind::internal, "slice {} acquired, expected {}", slice, next_slice_);
  }
  if (slice == 0) begin_sweep(sweeps_);
  fetch(slice);
  if (++next_slice_ == plan_.slices.size()) {
    next_slice_ = 0;
    ++sweeps_;
  }
  return {this, slice};
}

WeightStream::Lease::~Lease() {
  if (stream_ != nullptr) stream_->release(slice_);
}

const std::vector<MatrixView>& WeightStream::Lease::matrices() const {
  return stream_->matrices(slice_);
}

std::unique_ptr<WeightStream> WeightStream::open(
    const GgufModel& model,
    const WeightPlan& plan,
    Device& device,
    const StreamOptions& options,
    const FileReaderFactory& open_reader) {
  if (device.shares_host_memory()) {
    return std::make_unique<CpuWeightStream>(model, plan, device, options, open_reader);
  }
  return open_device_stream(model, plan, device, options, open_reader);
}

}  // namespace nightsweep
