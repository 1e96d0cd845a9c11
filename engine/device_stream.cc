#include "engine/device_stream.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/device_ring.h"
#include "engine/host_tiers.h"
#include "engine/machine_probe.h"
#include "engine/resident_slices.h"
#include "engine/slice_views.h"

namespace nightsweep {

namespace {

// Enough for all reads in flight while a slice is packed.
constexpr uint64_t kLoadStagingBytes = 32 << 20;
constexpr uint64_t kLinkProbeBytes = 16 << 20;
constexpr double kLinkProbeTime = 0.005;  // seconds
// Of the device's memory: what is left to others is not let fall below half of it.
constexpr uint64_t kFreeForOthers = 384 << 20;

class DeviceStream final : public WeightStream {
 public:
  DeviceStream(
      const GgufModel& model,
      const WeightPlan& plan,
      Device& device,
      const StreamOptions& options,
      const FileReaderFactory& open_reader)
      : WeightStream(plan),
        model_(model),
        device_(device),
        options_(options),
        open_reader_(open_reader),
        resident_(plan, device, options.resident_bytes, options.resident_piece_bytes),
        schedule_(plan.slices.size()),
        repacked_(plan.slices.size()) {
    for (uint32_t slice = 0; slice < plan.slices.size(); ++slice) {
      if (resident_.has_home(slice)) schedule_.set(slice, 1, false);
    }
    if (schedule_.any_passes(1)) {
      make_ring_memory(options.ring_bytes);
      open_rings(0);
    } else {
      load_resident();
      for (uint32_t slice = 0; slice < plan.slices.size(); ++slice)
        schedule_.set(slice, 0, false);
    }
    free_at_start_ = device.free_bytes();
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
    stats.n_shrinks = n_shrinks_;
    stats.n_grows = n_grows_;
    stats.filled_bytes = loaded_bytes_;
    if (ring_ == nullptr) return stats;
    const DeviceRing::Stats copied = ring_->stats();
    stats.copied_bytes = copied.copied_bytes;
    stats.wait_s = copied.wait_s;
    stats.copy_wait_s = copied.host_wait_s;
    stats.ring_wait_s = copied.room_wait_s;
    stats.measured_link_rate = measured_link_rate_;
    const RingLoader::Stats read = host_->stats();
    stats.host_bytes = host_->kept_bytes();
    stats.registered_bytes = host_->registered_bytes();
    stats.filled_bytes += read.filled_bytes;
    stats.streamed_bytes = read.read_bytes;
    stats.read_busy_s = read.read_busy_s;
    stats.measured_disk_rate = host_->measured_disk_rate();
    stats.source = host_->description();
    stats.source_reason = host_->reason();
    return stats;
  }
  void check_files() const override {
    if (host_ != nullptr) host_->check_files();
  }

 protected:
  void begin_sweep(uint64_t sweep) override {
    finish_shrinking(sweep);
    adapt(sweep);
    if (ring_ != nullptr) ring_->begin_sweep(sweep);
  }
  void fetch(uint32_t slice) override {
    if (resident_.holds(slice)) return;
    const std::vector<std::byte*>& data = ring_->acquire(slice);
    if (resident_.has_home(slice)) {
      resident_.fill(slice, data, &Device::repack);
      ring_->release(slice);
      return;
    }
    const uint64_t size_bytes = packed_slice_bytes(plan_.slices[slice], device_);
    if (scratch_used_ + size_bytes > scratch_->size_bytes()) {
      fail(
          ErrorKind::internal,
          "slice {} of {} bytes beside {} leased ones of {}: the scratch is {}", slice, size_bytes,
          n_repacked_, scratch_used_, scratch_->size_bytes());
    }
    std::byte* packed = scratch_->data() + scratch_used_;
    scratch_used_ += size_bytes;
    ++n_repacked_;
    const std::vector<WeightExtent>& extents = plan_.slices[slice].extents;
    for (size_t e = 0; e < extents.size(); ++e) {
      MatrixView view = view_of(extents[e], data[e]);
      device_.repack(view, packed);
      view.layout = WeightLayout::packed;
      view.data = packed;
      repacked_[slice].push_back(view);
      packed += packed_extent_bytes(extents[e], device_);
    }
    ring_->release(slice);
  }
  const std::vector<MatrixView>& matrices(uint32_t slice) const override {
    return resident_.holds(slice) ? resident_.matrices(slice) : repacked_[slice];
  }
  // The order of the operators keeps what lies in the scratch as long as it is read.
  void release(uint32_t slice) override {
    if (repacked_[slice].empty()) return;
    repacked_[slice].clear();
    if (--n_repacked_ == 0) scratch_used_ = 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void make_ring_memory(uint64_t ring_bytes) {
    if (ring_bytes < min_device_ring_bytes(plan_)) {
      fail(
          ErrorKind::device,
          "weight stream: a ring of {} is too small: this model needs {} (twice its largest "
          "slice); give more --vram",
          size_text(ring_bytes), size_text(min_device_ring_bytes(plan_)));
    }
    scratch_ = device_.allocate(scratch_bytes());
    ring_memory_ = device_.allocate(ring_bytes);
  }

  // What passes from `first_sweep` on comes through rings.
  void open_rings(uint64_t first_sweep) {
    measured_link_rate_ = measure_link();
    host_ = std::make_unique<HostTiers>(
        model_, plan_.slices, schedule_, device_,
        HostTiers::Options{
            .memory_bytes = options_.host_bytes,
            .disk_rate = options_.disk_rate,
            .source = options_.source,
            .first_sweep = first_sweep},
        open_reader_);
    ring_ = std::make_unique<DeviceRing>(
        device_, *host_, plan_.slices, schedule_,
        std::span(ring_memory_->data(), ring_memory_->size_bytes()),
        DeviceRing::Options{.first_sweep = first_sweep, .bytes_per_s = options_.link_rate});
  }

  uint64_t scratch_bytes() const {
    const uint64_t slice_bytes = largest_slice_bytes(plan_, device_);
    if (!options_.holds_windows) return slice_bytes;
    return std::max(slice_bytes, largest_window_bytes(plan_, device_));
  }

  void load_resident() {
    auto reader = open_reader_(
        {.paths = model_.paths(),
         .file_bytes = model_.file_bytes(),
         .identities = model_.file_identities(),
         .source = reader_source(options_.source),
         .depth = kReadsInFlight});
    auto staging = device_.allocate_host(
        align_up(std::max(min_ring_bytes(plan_), kLoadStagingBytes), kDirectAlignment));
    loaded_bytes_ = resident_.load(
        *reader, std::span(staging->data(), staging->size_bytes()), options_.disk_rate);
    reader->files().check_unchanged();
  }

  // Looks now and then how much memory others have left.
  void adapt(uint64_t sweep) {
    const Clock::time_point now = Clock::now();
    if (n_leaving_ > 0 || now < next_look_) return;
    next_look_ = now + options_.look_at_memory_every;
    const uint64_t free_bytes = device_.free_bytes();
    const uint64_t wanted_bytes = std::min(free_at_start_, kFreeForOthers);
    if (free_bytes < wanted_bytes / 2) {
      begin_shrinking(sweep, wanted_bytes - free_bytes);
    } else if (
        resident_.dropped_piece_bytes() > 0 &&
        free_bytes >= wanted_bytes + resident_.dropped_piece_bytes() * 5 / 4) {
      grow(sweep);
    }
  }

  // The slices of enough pieces pass from the next sweep on; this one still reads them where they
  // are.
  void begin_shrinking(uint64_t sweep, uint64_t wanted_bytes) {
    uint64_t left_bytes = wanted_bytes;
    if (ring_ == nullptr) left_bytes += scratch_bytes() + min_device_ring_bytes(plan_);
    for (size_t piece = resident_.n_pieces(); piece > 0 && left_bytes > 0; --piece) {
      for (uint32_t slice : resident_.slices_of(piece - 1))
        schedule_.set(slice, sweep + 1, true);
      left_bytes -= std::min(left_bytes, resident_.bytes_of(piece - 1));
      ++n_leaving_;
    }
    if (n_leaving_ == 0) return;
    leaves_at_ = sweep + 1;
    ++n_shrinks_;
    log_warning(
        "memory of the device: another program needs it; {} pieces of the resident weights stream "
        "from the next sweep on",
        n_leaving_);
  }

  void finish_shrinking(uint64_t sweep) {
    if (n_leaving_ == 0 || sweep < leaves_at_) return;
    device_.synchronize();
    for (; n_leaving_ > 0; --n_leaving_)
      resident_.drop_last_piece();
    if (ring_ != nullptr) return;
    // Others may have taken what the pieces gave. As long as no loader runs ahead, more of them can
    // go at once.
    for (;;) {
      try {
        make_ring_memory(min_device_ring_bytes(plan_));
        break;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::device || resident_.n_pieces() == 0) throw;
        log_debug("memory of the device: {}", error.what());
      }
      scratch_.reset();
      for (uint32_t slice : resident_.slices_of(resident_.n_pieces() - 1))
        schedule_.set(slice, sweep, true);
      resident_.drop_last_piece();
    }
    open_rings(sweep);
  }

  // Slices of a piece come in this sweep as they did, and stay.
  void grow(uint64_t sweep) {
    try {
      for (uint32_t slice : resident_.restore_piece())
        schedule_.set(slice, sweep + 1, false);
      ++n_grows_;
    } catch (const Error& error) {
      // Somebody was faster; there is another look.
      log_debug("memory of the device: {}", error.what());
    }
  }

  // Bytes a second into the ring, with nobody computing.
  double measure_link() {
    const uint64_t size_bytes = std::min<uint64_t>(kLinkProbeBytes, ring_memory_->size_bytes());
    const auto from = device_.allocate_host(size_bytes);
    return probe_copies(
        device_, from->data(), std::span(ring_memory_->data(), size_bytes), kLinkProbeTime);
  }

  const GgufModel& model_;
  Device& device_;
  const StreamOptions options_;
  const FileReaderFactory open_reader_;
  ResidentSlices resident_;
  StreamSchedule schedule_;
  std::vector<std::vector<MatrixView>> repacked_;  // by slice: in the scratch, as long as leased
  uint32_t n_repacked_ = 0;
  uint64_t scratch_used_ = 0;  // bytes
  double measured_link_rate_ = 0;
  uint64_t loaded_bytes_ = 0;  // before the first sweep, where everything is resident

  uint64_t free_at_start_ = 0;
  Clock::time_point next_look_ = {};
  size_t n_leaving_ = 0;    // pieces that go when leaves_at_ begins
  uint64_t leaves_at_ = 0;  // sweep
  uint32_t n_shrinks_ = 0;
  uint32_t n_grows_ = 0;

  // Null while everything is resident.
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
