#include "engine/weight_stream.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/device_stream.h"
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

 protected:
  void fetch(uint32_t slice) override;
  const std::vector<MatrixView>& matrices(uint32_t slice) const override {
    return resident_.holds(slice) ? resident_.matrices(slice) : leased_[slice];
  }
  void release(uint32_t slice) override {
    if (!resident_.holds(slice)) loader_->release(place_[slice]);
  }

 private:
  void check_ring(uint64_t ring_bytes) const;

  const double disk_rate_;
  ResidentSlices resident_;
  std::vector<const WeightSlice*> streamed_;     // in the order of a sweep
  std::vector<uint32_t> place_;                  // of a slice of the plan in streamed_
  std::vector<std::vector<MatrixView>> leased_;  // by slice of the plan
  double measured_disk_rate_ = 0;

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
      disk_rate_(options.disk_rate),
      resident_(plan, device, options.resident_bytes),
      place_(plan.slices.size()),
      leased_(plan.slices.size()) {
  for (uint32_t slice : resident_.streamed()) {
    place_[slice] = static_cast<uint32_t>(streamed_.size());
    streamed_.push_back(&plan.slices[slice]);
  }
  if (plan.slices.empty()) return;
  if (!streamed_.empty()) check_ring(options.ring_bytes);

  reader_ = open_reader(
      {.paths = model.paths(),
       .file_bytes = model.file_bytes(),
       .source = options.source,
       .depth = kReadsInFlight});
  const uint64_t staging_bytes = std::max(min_ring_bytes(plan), kStagingBytes);
  ring_memory_ = device.allocate_host(
      streamed_.empty() ? staging_bytes : align_down(options.ring_bytes, kDirectAlignment));
  const std::span ring(ring_memory_->data(), ring_memory_->size_bytes());
  resident_.load(*reader_, ring, disk_rate_);
  if (streamed_.empty()) {
    reader_.reset();
    ring_memory_.reset();
    return;
  }
  measured_disk_rate_ = measure_disk_rate(*reader_, ring, streamed_, disk_rate_);
  loader_ = std::make_unique<RingLoader>(*reader_, ring, streamed_, true, disk_rate_);
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

void CpuWeightStream::fetch(uint32_t slice) {
  if (resident_.holds(slice)) return;
  const std::vector<std::byte*>& data = loader_->acquire(place_[slice]);
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
  if (loader_ == nullptr) return stats;
  const RingLoader::Stats read = loader_->stats();
  stats.streamed_bytes = read.read_bytes;
  stats.wait_s = read.wait_s;
  stats.read_busy_s = read.read_busy_s;
  stats.measured_disk_rate = measured_disk_rate_;
  stats.source = reader_->description();
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
