#include "engine/device_stream.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/device_ring.h"
#include "engine/host_tiers.h"
#include "engine/resident_slices.h"
#include "engine/slice_views.h"

namespace nightsweep {

namespace {

// Enough for all reads in flight while a slice is packed.
constexpr uint64_t kStagingBytes = 32 << 20;
constexpr uint64_t kLinkProbeBytes = 16 << 20;
constexpr int kLinkProbes = 8;

class DeviceStream final : public WeightStream {
 public:
  DeviceStream(
      const GgufModel& model,
      const WeightPlan& plan,
      Device& device,
      const StreamOptions& options,
      const FileReaderFactory& open_reader)
      : WeightStream(plan),
        device_(device),
        resident_(plan, device, options.resident_bytes),
        place_(plan.slices.size()) {
    for (uint32_t slice : resident_.streamed()) {
      place_[slice] = static_cast<uint32_t>(streamed_.size());
      streamed_.push_back(&plan.slices[slice]);
    }
    load_resident(model, options, open_reader);
    if (streamed_.empty()) return;
    if (options.ring_bytes < min_device_ring_bytes(plan)) {
      fail(
          ErrorKind::device,
          "weight stream: a ring of {} is too small: this model needs {} (twice its largest "
          "slice); give more --vram",
          size_text(options.ring_bytes), size_text(min_device_ring_bytes(plan)));
    }
    uint64_t scratch_bytes = 0;
    for (const WeightSlice* slice : streamed_)
      scratch_bytes = std::max(scratch_bytes, packed_slice_bytes(*slice, device));
    scratch_ = device.allocate(scratch_bytes);
    ring_memory_ = device.allocate(options.ring_bytes);
    measured_link_rate_ = measure_link();
    host_ = std::make_unique<HostTiers>(
        model, streamed_, device,
        HostTiers::Options{
            .memory_bytes = options.host_bytes,
            .disk_rate = options.disk_rate,
            .source = options.source},
        open_reader);
    ring_ = std::make_unique<DeviceRing>(
        device, *host_, streamed_, std::span(ring_memory_->data(), ring_memory_->size_bytes()),
        options.link_rate);
  }
  // The operators may still read what is about to go; those of a lost device do not.
  ~DeviceStream() override {
    try {
      device_.synchronize();
    } catch (const Error& error) {
      log_debug("the end of a device's stream: {}", error.what());
    }
  }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  StreamStats stats() const override {
    StreamStats stats;
    stats.resident_bytes = resident_.size_bytes();
    stats.sweeps = sweeps_;
    stats.source = "resident";
    if (ring_ == nullptr) return stats;
    const DeviceRing::Stats copied = ring_->stats();
    stats.copied_bytes = copied.copied_bytes;
    stats.wait_s = copied.wait_s;
    stats.copy_wait_s = copied.host_wait_s;
    stats.ring_wait_s = copied.room_wait_s;
    stats.measured_link_rate = measured_link_rate_;
    stats.host_bytes = host_->kept_bytes();
    stats.streamed_bytes = host_->read_bytes();
    stats.read_busy_s = host_->read_busy_s();
    stats.measured_disk_rate = host_->measured_disk_rate();
    stats.source = host_->description();
    return stats;
  }

 protected:
  void fetch(uint32_t slice) override {
    if (!resident_.holds(slice)) repack(slice);
  }
  const std::vector<MatrixView>& matrices(uint32_t slice) const override {
    return resident_.holds(slice) ? resident_.matrices(slice) : repacked_;
  }
  // Resident, or in the scratch: the order of the operators keeps it as long as it is read.
  void release(uint32_t /*slice*/) override {}

 private:
  void load_resident(
      const GgufModel& model,
      const StreamOptions& options,
      const FileReaderFactory& open_reader) {
    auto reader = open_reader(
        {.paths = model.paths(),
         .file_bytes = model.file_bytes(),
         .source = options.source,
         .depth = kReadsInFlight});
    auto staging = device_.allocate_host(
        align_up(std::max(min_ring_bytes(plan_), kStagingBytes), kDirectAlignment));
    resident_.load(*reader, std::span(staging->data(), staging->size_bytes()), options.disk_rate);
  }

  void repack(uint32_t slice) {
    const std::vector<WeightExtent>& extents = plan_.slices[slice].extents;
    const std::vector<std::byte*>& data = ring_->acquire(place_[slice]);
    std::byte* packed = scratch_->data();
    repacked_.clear();
    for (size_t e = 0; e < extents.size(); ++e) {
      MatrixView view = view_of(extents[e], data[e]);
      device_.repack(view, packed);
      view.layout = WeightLayout::packed;
      view.data = packed;
      repacked_.push_back(view);
      packed += packed_extent_bytes(extents[e], device_);
    }
    ring_->release(place_[slice]);
  }

  // Bytes a second into the ring, with nobody computing.
  double measure_link() {
    const uint64_t size_bytes = std::min<uint64_t>(kLinkProbeBytes, ring_memory_->size_bytes());
    auto from = device_.allocate_host(size_bytes);
    auto event = device_.make_event();
    double seconds = 0;
    for (int probe = 0; probe < kLinkProbes; ++probe) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 4; ++i)
        device_.queue_copy(from->data(), size_bytes, ring_memory_->data());
      device_.record(*event, WorkQueue::copies);
      device_.wait(*event);
      // The first also warms up.
      if (probe > 0) {
        seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      }
    }
    return 4.0 * (kLinkProbes - 1) * static_cast<double>(size_bytes) / seconds;
  }

  Device& device_;
  ResidentSlices resident_;
  std::vector<const WeightSlice*> streamed_;  // in the order of a sweep
  std::vector<uint32_t> place_;               // of a slice of the plan in streamed_
  std::vector<MatrixView> repacked_;          // the last one acquired
  double measured_link_rate_ = 0;

  std::unique_ptr<DeviceMemory> scratch_;
  std::unique_ptr<DeviceMemory> ring_memory_;
  // In the order of use: the ring's thread ends before what it copies from.
  std::unique_ptr<HostTiers> host_;
  std::unique_ptr<DeviceRing> ring_;
};

}  // namespace

uint64_t min_device_ring_bytes(const WeightPlan& plan) {
  uint64_t largest = 0;
  for (const WeightSlice& slice : plan.slices)
    largest = std::max(largest, DeviceRing::bytes_of(slice));
  return 2 * largest;
}

std::unique_ptr<WeightStream> open_device_stream(
    const GgufModel& model,
    const WeightPlan& plan,
    Device& device,
    const StreamOptions& options,
    const FileReaderFactory& open_reader) {
  return std::make_unique<DeviceStream>(model, plan, device, options, open_reader);
}

}  // namespace nightsweep
