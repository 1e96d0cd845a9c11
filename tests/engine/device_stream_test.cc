// The stream into a device with memory of its own, on one whose queues run late and apart.
#include "engine/device_stream.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/device_ring.h"
#include "support/async_device.h"
#include "support/expect_error.h"
#include "support/scripted_reader.h"
#include "support/stream_model.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

class DeviceWeightStream : public testing::Test {
 protected:
  DeviceWeightStream() : model_(folder_.path("model.gguf"), {.n_layers = 3}) {}

  StreamOptions options(uint64_t resident_bytes, uint64_t host_bytes) const {
    return {
        .resident_bytes = resident_bytes,
        .ring_bytes = min_device_ring_bytes(model_.plan()) + 1000,
        .host_bytes = host_bytes};
  }
  uint64_t least_host_bytes() const {
    uint64_t largest = 0;
    for (const WeightSlice& slice : model_.plan().slices)
      largest = std::max(largest, ring_bytes_of(slice));
    return (HostTiers::kMaxLeases + 2) * largest;
  }
  std::unique_ptr<WeightStream>
  open(AsyncDevice& device, const StreamOptions& options, const ReaderScript& script = {}) {
    return WeightStream::open(model_.model(), model_.plan(), device, options, scripted(script));
  }
  // The host runs ahead: leases end long before the operators that they are for have run.
  void sweep(AsyncDevice& device, WeightStream& stream, int n_sweeps) {
    for (int i = 0; i < n_sweeps; ++i) {
      for (uint32_t slice = 0; slice < model_.plan().slices.size(); ++slice) {
        const WeightStream::Lease lease = stream.acquire(slice);
        const std::vector<WeightExtent>& extents = model_.plan().slices[slice].extents;
        ASSERT_EQ(lease.matrices().size(), extents.size());
        for (size_t e = 0; e < extents.size(); ++e)
          device.check(lease.matrices()[e], model_.data(extents[e]));
      }
    }
    device.synchronize();
  }

  TemporaryFolder folder_;
  StreamModel model_;
};

TEST_F(DeviceWeightStream, operators_see_the_bytes_of_the_file_from_every_tier) {
  AsyncDevice measure;
  const uint64_t all = packed_bytes(model_.plan(), measure);
  for (const uint64_t resident : {uint64_t{0}, all / 3, all}) {
    for (const uint64_t host : {least_host_bytes(), least_host_bytes() + all / 2, 4 * all}) {
      AsyncDevice device;
      const auto stream = open(device, options(resident, host));
      sweep(device, *stream, 4);
      EXPECT_EQ(device.mismatches(), 0U) << resident << " resident, " << host << " in the host";
      const StreamStats stats = stream->stats();
      EXPECT_LE(stats.resident_bytes, resident);
      EXPECT_EQ(stats.sweeps, 4U);
      if (resident == all) {
        EXPECT_EQ(stats.copied_bytes, 0U);
      } else {
        EXPECT_GT(stats.copied_bytes, 0U);
        EXPECT_GT(stats.measured_link_rate, 0);
      }
    }
  }
}

TEST_F(DeviceWeightStream, what_stays_in_the_host_is_read_once) {
  AsyncDevice device;
  const auto stream = open(device, options(0, 64 << 20));
  sweep(device, *stream, 3);
  EXPECT_EQ(stream->stats().streamed_bytes, model_.plan().streamable_bytes);
  EXPECT_GE(stream->stats().copied_bytes, 3 * model_.plan().streamable_bytes);
}

// The control: without the events the same test must see wrong bytes.
TEST_F(DeviceWeightStream, a_device_that_does_not_wait_is_caught) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "SKIPPED: the race is meant, and the thread sanitizer would report it";
#endif
  AsyncDevice device(false);
  const auto stream = open(device, options(0, 64 << 20));
  sweep(device, *stream, 20);
  EXPECT_GT(device.mismatches(), 0U);
}

TEST_F(DeviceWeightStream, too_little_memory_is_refused_with_its_option) {
  AsyncDevice device;
  StreamOptions small_ring = options(0, 64 << 20);
  small_ring.ring_bytes = 1000;
  EXPECT_ERROR(ErrorKind::device, open(device, small_ring), "--vram");
  EXPECT_ERROR(ErrorKind::device, open(device, options(0, 1000)), "--ram");
}

TEST_F(DeviceWeightStream, a_failing_disk_ends_the_sweep_and_names_the_file) {
  AsyncDevice device;
  const WeightExtent& extent = model_.plan().slices.back().extents.back();
  const ReaderScript script{
      .has_failure = true,
      .failure_offset = extent.offset,
      .failure_result = -EIO,
      .n_reads_before_failure = 10};
  const auto stream = open(device, options(0, least_host_bytes()), script);
  EXPECT_ERROR(ErrorKind::storage, sweep(device, *stream, 1000), "model.gguf");
}

TEST_F(DeviceWeightStream, a_stream_that_is_closed_in_the_middle_waits_for_its_copies) {
  for (int acquired = 0; acquired < 6; ++acquired) {
    AsyncDevice device;
    const auto stream = open(device, options(0, least_host_bytes()));
    for (int slice = 0; slice < acquired; ++slice)
      stream->acquire(static_cast<uint32_t>(slice));
  }
}

// Leases end while its error passes, and the stream with them: no destructor may throw.
TEST_F(DeviceWeightStream, a_lost_device_ends_with_its_error_and_not_with_the_process) {
  for (uint32_t acquired = 0; acquired < 5; ++acquired) {
    AsyncDevice device;
    auto stream = open(device, options(0, least_host_bytes()));
    for (uint32_t slice = 0; slice < acquired; ++slice)
      stream->acquire(slice);
    {
      const WeightStream::Lease lease = stream->acquire(acquired);
      device.lose();
    }
    EXPECT_ERROR(ErrorKind::device, stream->acquire(acquired + 1), "lost");
    stream.reset();
  }
}

}  // namespace
}  // namespace nightsweep
