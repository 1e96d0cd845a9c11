// The stream into a device with memory of its own, on one whose queues run late and apart.
#include "engine/device_stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "engine/device_ring.h"
#include "support/async_device.h"
#include "support/expect_error.h"
#include "support/sanitizer.h"
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

  // As a step that works its rows in batches does: every window is held whole, and its operators
  // come twice.
  void sweep_windows(AsyncDevice& device, WeightStream& stream, int n_sweeps) {
    for (int i = 0; i < n_sweeps; ++i) {
      uint32_t next = 0;
      for (const WeightWindow& window : model_.plan().windows) {
        std::vector<WeightStream::Lease> held;
        for (uint32_t n = 0; n < window.n_slices; ++n)
          held.push_back(stream.acquire(window.first_slice + n));
        for (int batch = 0; batch < 2; ++batch) {
          for (uint32_t n = 0; n < window.n_slices; ++n)
            check(device, window.first_slice + n, held[n]);
        }
        next = window.first_slice + window.n_slices;
      }
      for (; next < model_.plan().slices.size(); ++next)
        check(device, next, stream.acquire(next));
    }
    device.synchronize();
  }
  void check(AsyncDevice& device, uint32_t slice, const WeightStream::Lease& lease) {
    const std::vector<WeightExtent>& extents = model_.plan().slices[slice].extents;
    ASSERT_EQ(lease.matrices().size(), extents.size());
    for (size_t e = 0; e < extents.size(); ++e)
      device.check(lease.matrices()[e], model_.data(extents[e]));
  }

  TemporaryFolder folder_;
  StreamModel model_;
};

TEST_F(DeviceWeightStream, a_refusal_to_register_the_ring_is_told_beside_the_choice_of_the_tier) {
  for (const char* source : {"direct", "auto"}) {
    AsyncDevice device;
    ReaderScript script;
    script.memory_refusal = "refused by the test";
    StreamOptions wanted = options(0, least_host_bytes());
    wanted.source = source;
    auto stream = open(device, wanted, script);
    sweep(device, *stream, 2);
    EXPECT_EQ(device.mismatches(), 0U);
    const std::string reason = stream->stats().source_reason;
    EXPECT_TRUE(reason.ends_with("refused by the test")) << reason;
    EXPECT_EQ(reason.starts_with("not registered: "), wanted.source == "auto") << reason;
    *script.has_memory = true;
    stream.reset();
    EXPECT_FALSE(*script.has_memory);
  }
}

TEST_F(DeviceWeightStream, a_window_that_is_held_whole_shows_the_bytes_of_the_file) {
  AsyncDevice measure;
  const uint64_t all = packed_bytes(model_.plan(), measure);
  for (const uint64_t resident : {uint64_t{0}, all / 3, all}) {
    for (const uint64_t host : {least_host_bytes(), 4 * all}) {
      AsyncDevice device;
      StreamOptions windows = options(resident, host);
      windows.holds_windows = true;
      const auto stream = open(device, windows);
      sweep_windows(device, *stream, 3);
      sweep(device, *stream, 1);  // a step of few rows between them
      sweep_windows(device, *stream, 1);
      EXPECT_EQ(device.mismatches(), 0U) << resident << " resident, " << host << " in the host";
      EXPECT_EQ(stream->stats().sweeps, 5U);
    }
  }
}

TEST_F(DeviceWeightStream, leases_that_overlap_without_room_for_them_are_refused) {
  AsyncDevice device;
  const auto stream = open(device, options(0, least_host_bytes()));
  EXPECT_ERROR(ErrorKind::internal, sweep_windows(device, *stream, 1), "scratch");
}

TEST_F(DeviceWeightStream, windows_are_held_while_others_take_memory_and_give_it_back) {
  AsyncDevice device;
  device.set_free_bytes(uint64_t{1} << 30);
  const uint64_t all = packed_bytes(model_.plan(), device);
  StreamOptions windows = options(all * 3 / 4, 64 << 20);
  windows.holds_windows = true;
  windows.resident_piece_bytes = all / 8;
  windows.look_at_memory_every = std::chrono::milliseconds(0);
  const auto stream = open(device, windows);
  sweep_windows(device, *stream, 2);
  device.set_free_bytes(0);
  sweep_windows(device, *stream, 2);
  EXPECT_EQ(stream->stats().resident_bytes, 0U);
  device.set_free_bytes(uint64_t{1} << 30);
  sweep_windows(device, *stream, 10);
  EXPECT_GT(stream->stats().resident_bytes, 0U);
  EXPECT_EQ(device.mismatches(), 0U);
}

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
  EXPECT_EQ(stream->stats().filled_bytes, model_.plan().streamable_bytes);
  EXPECT_EQ(stream->stats().streamed_bytes, 0U);
  EXPECT_GE(stream->stats().copied_bytes, 3 * model_.plan().streamable_bytes);
}

// The control: without the events the same test must see wrong bytes.
TEST_F(DeviceWeightStream, a_device_that_does_not_wait_is_caught) {
  if (kHasThreadSanitizer) {
    GTEST_SKIP() << "SKIPPED: the race is meant, and the thread sanitizer would report it";
  }
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

// Two devices' worth of disk and link: what a sweep takes is never below either.
TEST_F(DeviceWeightStream, both_throttles_hold_at_once) {
  const auto bytes = static_cast<double>(model_.plan().streamable_bytes);
  for (const double link_share : {0.5, 2.0}) {
    AsyncDevice device;
    StreamOptions throttled = options(0, least_host_bytes());
    throttled.disk_rate = 3e7;
    throttled.link_rate = link_share * throttled.disk_rate;
    const auto stream = open(device, throttled);
    sweep(device, *stream, 1);
    const auto begin = std::chrono::steady_clock::now();
    sweep(device, *stream, 2);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    // What the rings held already came for free.
    const double ahead =
        static_cast<double>(least_host_bytes() + min_device_ring_bytes(model_.plan()) + 1000);
    const double rate = std::min(throttled.link_rate, throttled.disk_rate);
    EXPECT_GT(seconds, 0.9 * (2 * bytes - ahead) / rate) << link_share;
    EXPECT_EQ(device.mismatches(), 0U);
  }
}

TEST_F(DeviceWeightStream, memory_that_others_take_is_left_to_them_and_taken_back) {
  constexpr uint64_t kFree = uint64_t{1} << 30;
  AsyncDevice device;
  device.set_free_bytes(kFree);
  const uint64_t all = packed_bytes(model_.plan(), device);
  StreamOptions pieces = options(all * 3 / 4, 64 << 20);
  pieces.resident_piece_bytes = all / 8;
  pieces.look_at_memory_every = std::chrono::milliseconds(0);
  const auto stream = open(device, pieces);
  sweep(device, *stream, 2);
  const uint64_t resident_bytes = stream->stats().resident_bytes;
  const uint64_t held_bytes = device.allocated_bytes();
  EXPECT_EQ(stream->stats().n_shrinks, 0U);

  device.set_free_bytes(0);  // more is wanted than the weights are: all of them go
  sweep(device, *stream, 1);
  EXPECT_EQ(stream->stats().resident_bytes, resident_bytes) << "this sweep still reads them";
  device.set_free_bytes(kFree / 4);  // below what was left at the start, and above its half
  sweep(device, *stream, 3);
  EXPECT_EQ(stream->stats().resident_bytes, 0U);
  EXPECT_LE(device.allocated_bytes(), held_bytes - resident_bytes);
  EXPECT_EQ(stream->stats().n_shrinks, 1U);

  device.set_free_bytes(kFree);
  sweep(device, *stream, 10);
  EXPECT_EQ(stream->stats().resident_bytes, resident_bytes);
  EXPECT_EQ(device.allocated_bytes(), held_bytes);
  const uint64_t copied_bytes = stream->stats().copied_bytes;
  sweep(device, *stream, 1);
  EXPECT_LT(stream->stats().copied_bytes - copied_bytes, model_.plan().streamable_bytes);
  EXPECT_EQ(device.mismatches(), 0U);
}

TEST_F(DeviceWeightStream, a_model_that_was_all_resident_streams_when_others_need_the_memory) {
  AsyncDevice device;
  device.set_free_bytes(uint64_t{1} << 30);
  const uint64_t all = packed_bytes(model_.plan(), device);
  StreamOptions pieces = options(all, 64 << 20);
  pieces.resident_piece_bytes = all / 5;
  pieces.look_at_memory_every = std::chrono::milliseconds(0);
  const auto stream = open(device, pieces);
  sweep(device, *stream, 2);
  EXPECT_EQ(stream->stats().copied_bytes, 0U);
  EXPECT_EQ(stream->stats().resident_bytes, all);
  device.set_free_bytes(0);
  sweep(device, *stream, 1);
  device.set_free_bytes(uint64_t{1} << 28);
  sweep(device, *stream, 3);
  EXPECT_LT(stream->stats().resident_bytes, all);
  EXPECT_GT(stream->stats().copied_bytes, 0U);
  EXPECT_EQ(device.mismatches(), 0U);
}

TEST_F(DeviceWeightStream, a_ring_that_is_refused_while_it_shrinks_takes_more_of_the_pieces) {
  for (const uint32_t n_refusals : {1U, 2U, 3U}) {
    AsyncDevice device;
    device.set_free_bytes(1000);
    const uint64_t all = packed_bytes(model_.plan(), device);
    StreamOptions pieces = options(all, 64 << 20);
    pieces.resident_piece_bytes = all / 40;
    pieces.look_at_memory_every = std::chrono::milliseconds(0);
    const auto stream = open(device, pieces);
    sweep(device, *stream, 1);
    device.set_free_bytes(100);  // pieces go that are as large as the ring and a little more
    sweep(device, *stream, 1);
    device.set_free_bytes(500);
    device.refuse(n_refusals);
    sweep(device, *stream, 3);
    EXPECT_LT(stream->stats().resident_bytes, all);
    EXPECT_GT(stream->stats().resident_bytes, 0U);
    EXPECT_EQ(device.mismatches(), 0U);
  }
}

TEST_F(DeviceWeightStream, a_model_that_is_replaced_while_it_is_resident_is_not_read_from) {
  AsyncDevice device;
  device.set_free_bytes(uint64_t{1} << 30);
  const uint64_t all = packed_bytes(model_.plan(), device);
  StreamOptions pieces = options(all, 64 << 20);
  pieces.resident_piece_bytes = all / 5;
  pieces.look_at_memory_every = std::chrono::milliseconds(0);
  for (const char* source : {"auto", "registered", "direct"}) {
    const std::string path = folder_.path(std::string(source) + ".gguf");
    std::filesystem::copy_file(folder_.path("model.gguf"), path);
    const GgufModel model = GgufModel::open(path);
    pieces.source = source;
    device.set_free_bytes(uint64_t{1} << 30);
    const auto stream = WeightStream::open(model, model_.plan(), device, pieces, scripted({}));
    EXPECT_EQ(stream->stats().filled_bytes, model_.plan().streamable_bytes);
    sweep(device, *stream, 1);
    const std::string other = folder_.path("other.gguf");
    std::filesystem::copy_file(path, other);
    std::filesystem::rename(other, path);
    sweep(device, *stream, 1);  // nothing of it is read
    device.set_free_bytes(0);
    EXPECT_MODEL_ERROR(sweep(device, *stream, 3), path);
  }
}

// What is to stay is read, and copied, with the sweep that needs it first.
TEST_F(DeviceWeightStream, tiers_fill_while_the_first_sweep_runs) {
  AsyncDevice device;
  const uint64_t all = packed_bytes(model_.plan(), device);
  const auto stream = open(device, options(all / 2, 64 << 20));
  // More are to be resident than the rings hold.
  EXPECT_LT(stream->stats().filled_bytes, model_.plan().streamable_bytes);
  sweep(device, *stream, 1);
  EXPECT_EQ(stream->stats().filled_bytes, model_.plan().streamable_bytes);
  sweep(device, *stream, 2);
  EXPECT_EQ(stream->stats().filled_bytes, model_.plan().streamable_bytes);
  EXPECT_EQ(device.mismatches(), 0U);
}

TEST_F(DeviceWeightStream, page_locked_memory_that_is_refused_leaves_a_smaller_tier) {
  const StreamModel model(folder_.path("long.gguf"), {.n_layers = 12, .max_slice_bytes = 9000});
  for (const char* source : {"auto", "pinned"}) {
    AsyncDevice device;
    const auto stream = [&] {
      StreamOptions pinned = options(0, 64 << 20);
      pinned.source = source;
      device.set_host_bytes_left(1 << 20);  // probe and ring take a part of it
      return WeightStream::open(model.model(), model.plan(), device, pinned, scripted({}));
    };
    const auto n_slices = static_cast<uint32_t>(model.plan().slices.size());
    const auto sweep_all = [&](WeightStream& opened) {
      for (uint32_t i = 0; i < 3 * n_slices; ++i) {
        const WeightStream::Lease lease = opened.acquire(i % n_slices);
        const std::vector<WeightExtent>& extents = model.plan().slices[i % n_slices].extents;
        for (size_t e = 0; e < extents.size(); ++e)
          device.check(lease.matrices()[e], model.data(extents[e]));
      }
      device.synchronize();
    };
    const auto opened = stream();
    if (std::string_view(source) == "pinned") {
      EXPECT_ERROR(ErrorKind::device, sweep_all(*opened), "--source pinned");
      continue;
    }
    sweep_all(*opened);
    EXPECT_EQ(device.mismatches(), 0U);
    EXPECT_EQ(opened->stats().host_bytes, 0U);
    EXPECT_GT(opened->stats().streamed_bytes, 0U);
  }
}

TEST_F(DeviceWeightStream, a_pinned_tier_that_cannot_hold_all_is_refused_when_forced) {
  AsyncDevice device;
  StreamOptions pinned = options(0, least_host_bytes() + 20'000);
  pinned.source = "pinned";
  EXPECT_ERROR(ErrorKind::device, open(device, pinned), "--source pinned");
}

}  // namespace
}  // namespace nightsweep
