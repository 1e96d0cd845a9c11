#include "engine/host_tiers.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/units.h"

namespace nightsweep {

namespace {

// Slices that are leased, one that is read, one that is ahead.
constexpr uint64_t kRingSlices = HostTiers::kMaxLeases + 2;

}  // namespace

HostTiers::HostTiers(
    const GgufModel& model,
    const std::vector<const WeightSlice*>& slices,
    Device& device,
    const Options& options,
    const FileReaderFactory& open_reader)
    : places_(slices.size()) {
  std::vector<uint64_t> sizes_bytes;
  uint64_t total_bytes = 0;
  uint64_t largest_bytes = 0;
  for (const WeightSlice* slice : slices) {
    sizes_bytes.push_back(ring_bytes_of(*slice));
    total_bytes += sizes_bytes.back();
    largest_bytes = std::max(largest_bytes, sizes_bytes.back());
  }
  // A loader takes no ring below twice its largest slice, so one kept slice takes as much.
  const bool keeps_all = std::max(total_bytes, 2 * largest_bytes) <= options.memory_bytes;
  const uint64_t ring_bytes =
      keeps_all ? 0 : align_up(kRingSlices * largest_bytes, kDirectAlignment);
  if (ring_bytes > options.memory_bytes) {
    fail(
        ErrorKind::device,
        "--ram: {} for weights that stream are too little: this model needs {} ({} of its largest "
        "slices); give more --ram",
        size_text(options.memory_bytes), size_text(ring_bytes), kRingSlices);
  }
  const std::vector<bool> is_kept =
      spread_resident(sizes_bytes, keeps_all ? total_bytes : options.memory_bytes - ring_bytes);
  for (uint32_t i = 0; i < slices.size(); ++i) {
    Tier& tier = is_kept[i] ? kept_ : passing_;
    places_[i].is_kept = is_kept[i];
    places_[i].element = static_cast<uint32_t>(tier.slices.size());
    tier.slices.push_back(slices[i]);
    if (is_kept[i]) kept_bytes_ += sizes_bytes[i];
  }
  const auto open = [&](Tier& tier, uint64_t memory_bytes) {
    tier.reader = open_reader(
        {.paths = model.paths(),
         .file_bytes = model.file_bytes(),
         .source = options.source,
         .depth = kReadsInFlight});
    tier.memory = device.allocate_host(memory_bytes);
    return std::span(tier.memory->data(), tier.memory->size_bytes());
  };
  if (!passing_.slices.empty()) {
    const std::span<std::byte> ring = open(passing_, ring_bytes);
    measured_disk_rate_ =
        measure_disk_rate(*passing_.reader, ring, passing_.slices, options.disk_rate);
    passing_.loader = std::make_unique<RingLoader>(
        *passing_.reader, ring, passing_.slices, true, options.disk_rate);
  }
  if (!kept_.slices.empty()) {
    const std::span<std::byte> store = open(kept_, std::max(kept_bytes_, 2 * largest_bytes));
    if (measured_disk_rate_ == 0) {
      measured_disk_rate_ =
          measure_disk_rate(*kept_.reader, store, kept_.slices, options.disk_rate);
    }
    kept_.loader =
        std::make_unique<RingLoader>(*kept_.reader, store, kept_.slices, false, options.disk_rate);
  }
}

const std::vector<std::byte*>& HostTiers::acquire(uint32_t index) {
  Place& place = places_[index];
  if (!place.is_kept) return passing_.loader->acquire(place.element);
  if (place.extents.empty()) place.extents = kept_.loader->acquire(place.element);
  return place.extents;
}

void HostTiers::release(uint32_t index) {
  const Place& place = places_[index];
  if (!place.is_kept) passing_.loader->release(place.element);
}

uint64_t HostTiers::read_bytes() const {
  uint64_t total = 0;
  for (const Tier* tier : {&kept_, &passing_}) {
    if (tier->loader != nullptr) total += tier->loader->stats().read_bytes;
  }
  return total;
}

double HostTiers::read_busy_s() const {
  return passing_.loader == nullptr ? 0 : passing_.loader->stats().read_busy_s;
}

std::string HostTiers::description() const {
  const Tier& tier = passing_.slices.empty() ? kept_ : passing_;
  return tier.reader == nullptr ? "resident" : tier.reader->description();
}

}  // namespace nightsweep
