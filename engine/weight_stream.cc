#include "engine/weight_stream.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "engine/ring_loader.h"

namespace nightsweep {

namespace {

constexpr uint64_t kCacheLine = 64;
// Reads of 1 MiB in flight. Four saturate the disks we measured; the rest hides the time in which
// a busy machine does not run the loader.
constexpr uint32_t kReadsInFlight = 8;
// Staging where there is no ring: enough for all reads in flight while a slice is packed.
constexpr uint64_t kStagingBytes = 16 << 20;
constexpr uint64_t kProbeBytes = 128 << 20;
constexpr auto kProbeTime = std::chrono::milliseconds(300);

// One extent as a matrix, in file layout.
MatrixView view_of(const WeightExtent& extent, const std::byte* data) {
  return {
      static_cast<QuantType>(extent.tensor->ggml_type), WeightLayout::file, extent.n_rows,
      static_cast<uint32_t>(extent.tensor->dims[0]), data};
}

uint64_t packed_extent_bytes(const WeightExtent& extent, const Device& device) {
  const MatrixView view = view_of(extent, nullptr);
  return align_up(device.packed_bytes(view.type, view.n_rows, view.n_cols), kCacheLine);
}

uint64_t packed_slice_bytes(const WeightSlice& slice, const Device& device) {
  uint64_t total = 0;
  for (const WeightExtent& extent : slice.extents)
    total += packed_extent_bytes(extent, device);
  return total;
}

class CpuWeightStream final : public WeightStream {
 public:
  CpuWeightStream(
      const GgufModel& model,
      const WeightPlan& plan,
      Device& device,
      const StreamOptions& options,
      const FileReaderFactory& open_reader);

  Lease acquire(uint32_t slice) override;
  StreamStats stats() const override;

 protected:
  const std::vector<MatrixView>& matrices(uint32_t slice) const override {
    return slices_[slice].matrices;
  }
  void release(uint32_t slice) override {
    if (slices_[slice].streamed) loader_->release(*slices_[slice].streamed);
  }

 private:
  struct Slice {
    std::vector<MatrixView> matrices;
    std::optional<uint32_t> streamed;  // place among the streamed slices; none: resident
  };

  void choose_resident(uint64_t resident_bytes);
  void check_ring(uint64_t ring_bytes) const;
  void load_resident(FileReader& reader, std::span<std::byte> staging);
  void measure_disk(FileReader& reader, std::span<std::byte> ring);

  const WeightPlan& plan_;
  Device& device_;
  const double disk_rate_;
  std::vector<Slice> slices_;                 // by slice of the plan
  std::vector<const WeightSlice*> streamed_;  // in the order of a sweep
  std::vector<uint32_t> resident_;            // slices of the plan
  uint64_t resident_bytes_ = 0;
  uint32_t next_slice_ = 0;
  uint64_t sweeps_ = 0;
  double measured_disk_rate_ = 0;

  std::unique_ptr<DeviceMemory> resident_memory_;
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
    : plan_(plan), device_(device), disk_rate_(options.disk_rate), slices_(plan.slices.size()) {
  choose_resident(options.resident_bytes);
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
  load_resident(*reader_, ring);
  if (streamed_.empty()) {
    reader_.reset();
    ring_memory_.reset();
    return;
  }
  measure_disk(*reader_, ring);
  loader_ = std::make_unique<RingLoader>(*reader_, ring, streamed_, true, disk_rate_);
}

void CpuWeightStream::choose_resident(uint64_t resident_bytes) {
  std::vector<uint64_t> sizes_bytes;
  sizes_bytes.reserve(plan_.slices.size());
  for (const WeightSlice& slice : plan_.slices) {
    sizes_bytes.push_back(packed_slice_bytes(slice, device_));
  }
  const std::vector<bool> is_resident = spread_resident(sizes_bytes, resident_bytes);
  for (uint32_t i = 0; i < slices_.size(); ++i) {
    if (is_resident[i]) {
      resident_.push_back(i);
      resident_bytes_ += sizes_bytes[i];
    } else {
      slices_[i].streamed = static_cast<uint32_t>(streamed_.size());
      streamed_.push_back(&plan_.slices[i]);
    }
  }
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

// Reads ahead into the staging space while it packs.
void CpuWeightStream::load_resident(FileReader& reader, std::span<std::byte> staging) {
  if (resident_.empty()) return;
  resident_memory_ = device_.allocate(resident_bytes_);
  std::byte* packed = resident_memory_->data();
  std::vector<const WeightSlice*> sequence;
  sequence.reserve(resident_.size());
  for (uint32_t slice : resident_)
    sequence.push_back(&plan_.slices[slice]);

  RingLoader loader(reader, staging, sequence, false, disk_rate_);
  for (uint32_t i = 0; i < resident_.size(); ++i) {
    const std::vector<std::byte*>& data = loader.acquire(i);
    const std::vector<WeightExtent>& extents = sequence[i]->extents;
    for (size_t e = 0; e < extents.size(); ++e) {
      MatrixView view = view_of(extents[e], data[e]);
      device_.pack(view, packed);
      view.layout = WeightLayout::packed;
      view.data = packed;
      slices_[resident_[i]].matrices.push_back(view);
      packed += packed_extent_bytes(extents[e], device_);
    }
    device_.synchronize();  // pack() may only be queued, and reads the staging space
    loader.release(i);
  }
}

// The same reads as in a sweep, with nobody computing.
void CpuWeightStream::measure_disk(FileReader& reader, std::span<std::byte> ring) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  RingLoader loader(reader, ring, streamed_, false, disk_rate_);
  uint64_t n_bytes = 0;
  Clock::duration time{};
  for (uint32_t i = 0; i < streamed_.size() && n_bytes < kProbeBytes && time < kProbeTime; ++i) {
    loader.acquire(i);
    loader.release(i);
    n_bytes += streamed_[i]->size_bytes;
    time = Clock::now() - begin;
  }
  measured_disk_rate_ = static_cast<double>(n_bytes) / std::chrono::duration<double>(time).count();
}

WeightStream::Lease CpuWeightStream::acquire(uint32_t slice) {
  if (slice != next_slice_) {
    fail(ErrorKind::internal, "slice {} acquired, expected {}", slice, next_slice_);
  }
  Slice& wanted = slices_[slice];
  if (wanted.streamed) {
    const std::vector<std::byte*>& data = loader_->acquire(*wanted.streamed);
    const std::vector<WeightExtent>& extents = plan_.slices[slice].extents;
    wanted.matrices.clear();
    for (size_t e = 0; e < extents.size(); ++e) {
      wanted.matrices.push_back(view_of(extents[e], data[e]));
    }
  }
  if (++next_slice_ == slices_.size()) {
    next_slice_ = 0;
    ++sweeps_;
  }
  return {this, slice};
}

StreamStats CpuWeightStream::stats() const {
  StreamStats stats;
  stats.resident_bytes = resident_bytes_;
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

uint64_t packed_bytes(const WeightPlan& plan, const Device& device) {
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
  return std::make_unique<CpuWeightStream>(model, plan, device, options, open_reader);
}

}  // namespace nightsweep
