#include "engine/weight_stream.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "engine/ring_loader.h"
#include "support/expect_error.h"
#include "support/fake_device.h"
#include "support/scripted_reader.h"
#include "support/stream_model.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

class WeightStreamTest : public testing::Test {
 protected:
  std::unique_ptr<WeightStream>
  open(const StreamModel& model, const StreamOptions& options, const ReaderScript& script) {
    return WeightStream::open(model.model(), model.plan(), device_, options, scripted(script));
  }

  // Whether a lease shows the bytes of the file.
  static bool
  shows_file(const StreamModel& model, uint32_t slice, const std::vector<MatrixView>& matrices) {
    const std::vector<WeightExtent>& extents = model.plan().slices[slice].extents;
    if (matrices.size() != extents.size()) return false;
    for (size_t i = 0; i < extents.size(); ++i) {
      const std::string_view expected = model.data(extents[i]);
      const MatrixView& view = matrices[i];
      if (view.n_rows != extents[i].n_rows || view.n_cols != extents[i].tensor->dims[0] ||
          static_cast<uint32_t>(view.type) != extents[i].tensor->ggml_type) {
        return false;
      }
      if (view.layout == WeightLayout::file) {
        if (std::memcmp(view.data, expected.data(), expected.size()) != 0) return false;
        continue;
      }
      for (size_t b = 0; b < expected.size(); ++b) {
        if ((view.data[b] ^ FakeDevice::kPackMark) != static_cast<std::byte>(expected[b])) {
          return false;
        }
      }
    }
    return true;
  }

  // Sweeps with every slice right when its lease begins and still when it ends.
  static void expect_sweeps(WeightStream& stream, const StreamModel& model, int n_sweeps) {
    for (int sweep = 0; sweep < n_sweeps; ++sweep) {
      for (uint32_t slice = 0; slice < model.plan().slices.size(); ++slice) {
        const WeightStream::Lease lease = stream.acquire(slice);
        ASSERT_TRUE(shows_file(model, slice, lease.matrices())) << "slice " << slice;
        if (slice % 5 == 0) std::this_thread::yield();
        ASSERT_TRUE(shows_file(model, slice, lease.matrices())) << "slice " << slice << ", later";
      }
    }
  }

  static std::string error_of_sweeps(WeightStream& stream, size_t n_slices, ErrorKind kind) {
    try {
      for (int sweep = 0; sweep < 100; ++sweep) {
        for (uint32_t slice = 0; slice < n_slices; ++slice)
          stream.acquire(slice);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
  FakeDevice device_;
};

TEST_F(WeightStreamTest, a_ring_is_registered_while_it_is_read_into_and_a_refusal_is_told) {
  const StreamModel model(folder_.path("model"), {});
  for (const char* refusal : {"", "refused by the test"}) {
    ReaderScript script;
    script.memory_refusal = refusal;
    auto stream = open(model, {.ring_bytes = min_ring_bytes(model.plan())}, script);
    EXPECT_EQ(*script.has_memory, script.memory_refusal.empty());
    expect_sweeps(*stream, model, 3);
    EXPECT_EQ(stream->stats().source_reason, refusal);
    stream.reset();
    EXPECT_FALSE(*script.has_memory);
  }
}

TEST_F(WeightStreamTest, leases_show_the_file_for_every_budget_ring_source_and_alignment) {
  struct Shape {
    uint32_t n_files;
    uint32_t alignment;
    uint64_t max_slice_bytes;
  };
  for (const Shape& shape : {Shape{1, 32, 40'000}, {3, 8, 9'000}, {2, 4096, 1 << 20}}) {
    const StreamModel model(
        folder_.path(format("model{}", shape.n_files)), {.n_files = shape.n_files,
                                                         .alignment = shape.alignment,
                                                         .max_slice_bytes = shape.max_slice_bytes});
    const uint64_t all = packed_bytes(model.plan(), device_);
    const uint64_t least = min_ring_bytes(model.plan());
    for (uint64_t resident : {uint64_t{0}, all / 2, all - 1, all}) {
      for (uint64_t ring : {least, least + 12'345, 3 * least, 4 * all}) {
        for (const char* source : {"auto", "pread", "mmap"}) {
          SCOPED_TRACE(format(
              "{} files, resident {} of {}, ring {}, {}", shape.n_files, resident, all, ring,
              source));
          const std::unique_ptr<WeightStream> stream = WeightStream::open(
              model.model(), model.plan(), device_,
              {.resident_bytes = resident, .ring_bytes = ring, .source = source});
          expect_sweeps(*stream, model, 3);
          const StreamStats stats = stream->stats();
          EXPECT_LE(stats.resident_bytes, resident);
          EXPECT_EQ(stats.sweeps, 3U);
          if (resident >= all) {
            EXPECT_EQ(stats.source, "resident");
            EXPECT_EQ(stats.resident_bytes, all);
            EXPECT_EQ(stats.streamed_bytes, 0U);
            EXPECT_EQ(device_.allocated_bytes(), all);
          } else {
            EXPECT_GT(stats.streamed_bytes, 0U);
            EXPECT_GT(stats.measured_disk_rate, 0);
            EXPECT_EQ(device_.allocated_bytes(), stats.resident_bytes + align_down(ring, 4096));
            if (resident == 0) {
              EXPECT_GE(stats.streamed_bytes, 3 * model.plan().streamable_bytes);
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(device_.allocated_bytes(), 0U);
}

TEST_F(WeightStreamTest, gives_the_same_bytes_under_every_schedule_of_the_disk) {
  const StreamModel model(folder_.path("model"), {.n_layers = 2, .n_files = 2});
  const uint64_t all = packed_bytes(model.plan(), device_);
  const uint64_t least = min_ring_bytes(model.plan());
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::unique_ptr<WeightStream> stream = open(
        model, {.resident_bytes = random() % all, .ring_bytes = least + random() % (2 * all)},
        {.seed = seed, .alignment = seed % 2 == 0 ? kDirectAlignment : 1});
    expect_sweeps(*stream, model, 2);
  }
}

TEST_F(WeightStreamTest, resident_slices_are_as_the_cpu_device_packs_them) {
  const StreamModel model(folder_.path("model"), {.n_layers = 2});
  const std::unique_ptr<Device> cpu = make_cpu_device({});
  const std::unique_ptr<WeightStream> stream = WeightStream::open(
      model.model(), model.plan(), *cpu,
      {.resident_bytes = packed_bytes(model.plan(), *cpu) / 2,
       .ring_bytes = min_ring_bytes(model.plan())});
  uint32_t n_packed = 0;
  for (uint32_t slice = 0; slice < model.plan().slices.size(); ++slice) {
    const WeightStream::Lease lease = stream->acquire(slice);
    for (size_t i = 0; i < lease.matrices().size(); ++i) {
      const MatrixView& view = lease.matrices()[i];
      const std::string_view file = model.data(model.plan().slices[slice].extents[i]);
      if (view.layout == WeightLayout::file) {
        EXPECT_EQ(std::memcmp(view.data, file.data(), file.size()), 0);
        continue;
      }
      ++n_packed;
      MatrixView expected = view;
      expected.layout = WeightLayout::file;
      expected.data = reinterpret_cast<const std::byte*>(file.data());
      std::vector<std::byte> packed(cpu->packed_bytes(view.type, view.n_rows, view.n_cols));
      cpu->pack(expected, packed.data());
      EXPECT_EQ(std::memcmp(view.data, packed.data(), packed.size()), 0) << "slice " << slice;
    }
  }
  EXPECT_GT(n_packed, 0U);
}

TEST_F(WeightStreamTest, several_leases_at_once_may_end_in_any_order) {
  const StreamModel model(folder_.path("model"), {});
  const auto n_slices = static_cast<uint32_t>(model.plan().slices.size());
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    // The oldest lease is at most three slices behind the next one: five halves of the least ring.
    const std::unique_ptr<WeightStream> stream =
        open(model, {.ring_bytes = min_ring_bytes(model.plan()) * 5 / 2}, {.seed = seed});
    std::map<uint32_t, WeightStream::Lease> held;  // by number of the acquire
    for (uint32_t i = 0; i < 3 * n_slices; ++i) {
      held.emplace(i, stream->acquire(i % n_slices));
      for (const auto& [number, lease] : held) {
        ASSERT_TRUE(shows_file(model, number % n_slices, lease.matrices()));
      }
      while (!held.empty() && (random() % 3 == 0 || held.begin()->first + 2 < i)) {
        const bool must_be_oldest = held.begin()->first + 2 < i;
        const size_t which = must_be_oldest ? 0 : random() % held.size();
        held.erase(std::next(held.begin(), static_cast<ptrdiff_t>(which)));
      }
    }
  }
}

TEST_F(WeightStreamTest, a_window_is_held_whole_however_late_its_slices_come) {
  const StreamModel model(folder_.path("model"), {.max_slice_bytes = 30'000});
  uint32_t most_slices = 0;
  for (const WeightWindow& window : model.plan().windows)
    most_slices = std::max(most_slices, window.n_slices);
  const auto n_slices = static_cast<uint32_t>(model.plan().slices.size());
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::unique_ptr<WeightStream> stream = open(
        model, {.ring_bytes = min_ring_bytes(model.plan()) * (most_slices + 2) / 2},
        {.seed = seed});
    for (int sweep = 0; sweep < 3; ++sweep) {
      uint32_t next = 0;
      for (const WeightWindow& window : model.plan().windows) {
        std::map<uint32_t, WeightStream::Lease> held;
        for (; next < window.first_slice + window.n_slices; ++next)
          held.emplace(next, stream->acquire(next));
        for (const auto& [slice, lease] : held)
          ASSERT_TRUE(shows_file(model, slice, lease.matrices()));
        while (!held.empty())
          held.erase(std::next(held.begin(), static_cast<ptrdiff_t>(random() % held.size())));
      }
      for (; next < n_slices; ++next)
        ASSERT_TRUE(shows_file(model, next, stream->acquire(next).matrices()));
    }
    EXPECT_EQ(stream->stats().sweeps, 3U);
  }
}

TEST_F(WeightStreamTest, more_leases_than_the_ring_holds_is_an_error_not_a_hang) {
  const StreamModel model(folder_.path("model"), {});
  const std::unique_ptr<WeightStream> stream =
      open(model, {.ring_bytes = min_ring_bytes(model.plan())}, {});
  std::deque<WeightStream::Lease> held;
  try {
    for (uint32_t slice = 0; slice < model.plan().slices.size(); ++slice) {
      held.push_back(stream->acquire(slice));
    }
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(std::string(error.what()).find("is leased"), std::string::npos);
  }
}

TEST_F(WeightStreamTest, a_slice_out_of_turn_is_refused) {
  const StreamModel model(folder_.path("model"), {});
  const std::unique_ptr<WeightStream> stream =
      open(model, {.ring_bytes = min_ring_bytes(model.plan())}, {});
  stream->acquire(0);
  EXPECT_THROW(stream->acquire(2), Error);
  stream->acquire(1);
}

TEST_F(WeightStreamTest, a_ring_that_is_too_small_is_refused_with_what_is_needed) {
  const StreamModel model(folder_.path("model"), {});
  const uint64_t least = min_ring_bytes(model.plan());
  try {
    open(model, {.ring_bytes = least - 1}, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string(error.what()).find("too small"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--ram"), std::string::npos);
  }
  open(model, {.ring_bytes = least}, {});
  open(model, {.resident_bytes = packed_bytes(model.plan(), device_), .ring_bytes = 0}, {});
}

TEST_F(WeightStreamTest, loading_takes_no_more_memory_than_the_budget_and_some_staging) {
  const StreamModel model(folder_.path("model"), {.n_layers = 60});
  const uint64_t all = packed_bytes(model.plan(), device_);
  open(model, {.resident_bytes = all}, {.is_late = false});
  EXPECT_LE(device_.peak_bytes(), all + (16 << 20));
}

TEST_F(WeightStreamTest, resident_and_streamed_slices_are_interleaved) {
  const StreamModel model(folder_.path("model"), {.n_layers = 20});
  const uint64_t all = packed_bytes(model.plan(), device_);
  const std::unique_ptr<WeightStream> stream =
      open(model, {.resident_bytes = all / 2, .ring_bytes = 1 << 20}, {.is_late = false});
  uint32_t n_alike = 0;
  WeightLayout last = WeightLayout::packed;
  for (uint32_t slice = 0; slice < model.plan().slices.size(); ++slice) {
    const WeightStream::Lease lease = stream->acquire(slice);
    const WeightLayout layout = lease.matrices().front().layout;
    n_alike = layout == last ? n_alike + 1 : 1;
    last = layout;
    EXPECT_LE(n_alike, 4U) << "slice " << slice;
  }
}

TEST_F(WeightStreamTest, reads_ahead_over_the_end_of_a_sweep) {
  const StreamModel model(folder_.path("model"), {});
  const std::unique_ptr<WeightStream> stream = open(
      model, {.ring_bytes = 4 * model.plan().streamable_bytes},
      {.is_short = false, .is_late = false});
  expect_sweeps(*stream, model, 1);
  // All of the next sweep arrives with nobody asking.
  while (stream->stats().streamed_bytes < 2 * model.plan().streamable_bytes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const double waited_s = stream->stats().wait_s;
  expect_sweeps(*stream, model, 1);
  EXPECT_EQ(stream->stats().wait_s, waited_s);
}

TEST_F(WeightStreamTest, acquire_waits_for_the_last_byte) {
  const StreamModel model(folder_.path("model"), {});
  ReaderScript script{.is_late = false};
  const std::unique_ptr<WeightStream> stream =
      open(model, {.ring_bytes = min_ring_bytes(model.plan())}, script);
  expect_sweeps(*stream, model, 1);
  for (int round = 0; round < 5; ++round) {
    script.gate->close();
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      script.gate->open();
    });
    expect_sweeps(*stream, model, 1);
    opener.join();
  }
  EXPECT_GT(stream->stats().wait_s, 0);
}

// The control of the checks above: a lease that ends too early is seen by them.
TEST_F(WeightStreamTest, the_bytes_of_an_ended_lease_are_poisoned_in_debug_builds) {
  if (!kPoisonsReleasedSpace) GTEST_SKIP() << "SKIPPED: only debug builds poison";
  const StreamModel model(folder_.path("model"), {});
  ReaderScript script{.is_late = false};
  const std::unique_ptr<WeightStream> stream =
      open(model, {.ring_bytes = min_ring_bytes(model.plan())}, script);
  expect_sweeps(*stream, model, 1);
  std::vector<MatrixView> matrices;
  {
    const WeightStream::Lease lease = stream->acquire(0);
    matrices = lease.matrices();
    script.gate->close();  // nothing new may arrive there meanwhile
    ASSERT_TRUE(shows_file(model, 0, matrices));
  }
  EXPECT_FALSE(shows_file(model, 0, matrices));
  for (size_t i = 0; i < matrices.size(); ++i) {
    const uint64_t size_bytes = model.plan().slices[0].extents[i].size_bytes;
    EXPECT_TRUE(std::all_of(
        matrices[i].data, matrices[i].data + size_bytes, [](std::byte b) { return b == kPoison; }));
  }
  script.gate->open();
}

TEST_F(WeightStreamTest, an_io_error_comes_out_of_acquire_and_again_each_time) {
  const StreamModel model(folder_.path("model"), {.n_files = 2});
  const WeightExtent& victim = model.plan().slices[9].extents[0];
  // The first reading measures the disk; the failure comes in a sweep.
  for (uint32_t n_reads : {2U, 3U, 8U}) {
    const std::unique_ptr<WeightStream> stream = open(
        model, {.ring_bytes = min_ring_bytes(model.plan())},
        {.is_short = false,
         .has_failure = true,
         .failure_file = victim.file,
         .failure_offset = victim.offset,
         .failure_result = -EIO,
         .n_reads_before_failure = n_reads});
    uint32_t slice = 0;
    try {
      for (;; ++slice)
        stream->acquire(slice % static_cast<uint32_t>(model.plan().slices.size()));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::storage);
      EXPECT_NE(
          std::string(error.what()).find(model.model().paths()[victim.file]), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("errno 5"), std::string::npos);
    }
    slice %= static_cast<uint32_t>(model.plan().slices.size());
    EXPECT_LE(slice, 9U) << "the slice that could not be read, or one behind it, was shown";
    EXPECT_THROW(stream->acquire(slice), Error);
  }
}

TEST_F(WeightStreamTest, an_error_while_slices_arrive_to_stay_comes_out_of_acquire) {
  const StreamModel model(folder_.path("model"), {});
  const WeightExtent& victim = model.plan().slices[9].extents[0];
  const ReaderScript script{
      .has_failure = true, .failure_offset = victim.offset, .failure_result = -EIO};
  {
    const auto stream =
        open(model, {.resident_bytes = packed_bytes(model.plan(), device_)}, script);
    uint32_t n_acquired = 0;
    const auto acquire_on = [&] {
      for (; n_acquired < model.plan().slices.size(); ++n_acquired)
        stream->acquire(n_acquired);
    };
    EXPECT_ERROR(ErrorKind::storage, acquire_on(), "errno 5");
    EXPECT_LE(n_acquired, 9U);
    EXPECT_ERROR(ErrorKind::storage, acquire_on(), "errno 5");
  }
  EXPECT_EQ(device_.allocated_bytes(), 0U);
}

// The operators have what was read before the file changed; nobody may believe them.
TEST_F(WeightStreamTest, a_file_that_changes_within_a_sweep_is_noticed_behind_it) {
  const std::string path = folder_.path("model");
  const StreamModel model(path, {});
  for (const char* source : {"auto", "mmap"}) {
    const auto stream = WeightStream::open(
        model.model(), model.plan(), device_,
        {.ring_bytes = 4 * model.plan().streamable_bytes, .source = source});
    expect_sweeps(*stream, model, 1);
    stream->check_files();
    const auto time = std::filesystem::last_write_time(path);
    std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
    EXPECT_ERROR(ErrorKind::model, stream->check_files(), "written to while it is in use");
    std::filesystem::last_write_time(path, time);
  }
}

// Another file under the same name is none of ours: ours is still open, and whole.
TEST_F(WeightStreamTest, a_file_replaced_while_running_goes_on_with_the_bytes_it_had) {
  const std::string path = folder_.path("model");
  const StreamModel model(path, {});
  for (const char* source : {"auto", "pread", "mmap"}) {
    const std::string kept = folder_.path("kept");
    std::filesystem::copy_file(path, kept, std::filesystem::copy_options::overwrite_existing);
    const GgufModel opened = GgufModel::open(path);
    const auto stream = WeightStream::open(
        opened, model.plan(), device_,
        {.ring_bytes = min_ring_bytes(model.plan()), .source = source});
    expect_sweeps(*stream, model, 1);
    const std::string other = folder_.path("other");
    std::ofstream(other) << "another model";
    std::filesystem::rename(other, path);
    expect_sweeps(*stream, model, 2);
    stream->check_files();
    std::filesystem::rename(kept, path);
  }
}

TEST_F(WeightStreamTest, sources_of_a_link_are_refused_where_there_is_none) {
  const StreamModel model(folder_.path("model"), {});
  for (const char* source : {"pinned", "registered"}) {
    EXPECT_ERROR(
        ErrorKind::usage,
        WeightStream::open(
            model.model(), model.plan(), device_,
            {.ring_bytes = min_ring_bytes(model.plan()), .source = source}),
        std::string("--source ") + source);
  }
}

TEST_F(WeightStreamTest, a_file_truncated_while_running_is_named) {
  const std::string path = folder_.path("model");
  const StreamModel model(path, {});
  for (const char* source : {"auto", "pread", "mmap"}) {
    const std::string kept = folder_.path("kept");
    std::filesystem::copy_file(path, kept, std::filesystem::copy_options::overwrite_existing);
    const auto time = std::filesystem::last_write_time(path);
    const std::unique_ptr<WeightStream> stream = WeightStream::open(
        model.model(), model.plan(), device_,
        {.ring_bytes = min_ring_bytes(model.plan()), .source = source});
    expect_sweeps(*stream, model, 1);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    const std::string text = error_of_sweeps(*stream, model.plan().slices.size(), ErrorKind::model);
    EXPECT_NE(text.find(path), std::string::npos) << text;
    EXPECT_NE(text.find("expected"), std::string::npos) << text;
    std::filesystem::copy_file(kept, path, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::last_write_time(path, time);
  }
}

TEST_F(WeightStreamTest, a_file_written_to_while_running_is_noticed_at_the_next_sweep) {
  const std::string path = folder_.path("model");
  const StreamModel model(path, {});
  const std::unique_ptr<WeightStream> stream = WeightStream::open(
      model.model(), model.plan(), device_, {.ring_bytes = min_ring_bytes(model.plan())});
  expect_sweeps(*stream, model, 1);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(-1, std::ios::end)
      << '!';
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  const std::string text = error_of_sweeps(*stream, model.plan().slices.size(), ErrorKind::model);
  EXPECT_NE(text.find("written to while it is in use"), std::string::npos) << text;
}

TEST_F(WeightStreamTest, ends_at_any_moment_with_reads_in_flight) {
  const StreamModel model(folder_.path("model"), {});
  const auto n_slices = static_cast<uint32_t>(model.plan().slices.size());
  for (uint32_t stop_at = 0; stop_at < 2 * n_slices; stop_at += 3) {
    const std::unique_ptr<WeightStream> stream =
        open(model, {.ring_bytes = min_ring_bytes(model.plan()) + 99'999}, {.seed = stop_at + 1});
    for (uint32_t i = 0; i < stop_at; ++i)
      stream->acquire(i % n_slices);
  }
}

TEST_F(WeightStreamTest, the_throttle_sets_the_measured_rate) {
  const StreamModel model(folder_.path("model"), {.n_layers = 2});
  // Far below any disk, so that only the throttle counts.
  const double rate = 4e6;
  const std::unique_ptr<WeightStream> stream = WeightStream::open(
      model.model(), model.plan(), device_,
      {.ring_bytes = min_ring_bytes(model.plan()), .disk_rate = rate});
  EXPECT_LT(stream->stats().measured_disk_rate, 1.3 * rate);
  const auto begin = std::chrono::steady_clock::now();
  expect_sweeps(*stream, model, 1);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // What the ring held already came for free.
  const double bytes = static_cast<double>(model.plan().streamable_bytes) -
                       static_cast<double>(min_ring_bytes(model.plan()));
  EXPECT_GT(seconds, 0.7 * bytes / rate);
}

TEST_F(WeightStreamTest, an_empty_plan_is_resident) {
  const StreamModel model(folder_.path("model"), {});
  const WeightPlan plan;
  const std::unique_ptr<WeightStream> stream = WeightStream::open(model.model(), plan, device_, {});
  EXPECT_EQ(stream->stats().source, "resident");
}

TEST(RingSpace, pieces_never_overlap_nor_wrap) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    const uint64_t capacity = 1000;
    RingSpace space(capacity);
    std::deque<std::pair<uint64_t, uint64_t>> taken;  // position, size
    std::array<int, 1000> owners{};
    for (int step = 0; step < 2000; ++step) {
      const uint64_t size = 1 + random() % 500;
      uint64_t begin = 0;
      if (random() % 2 == 0 && space.find(size, begin)) {
        const uint64_t offset = space.offset_of(begin);
        ASSERT_LE(offset + size, capacity);
        for (uint64_t i = offset; i < offset + size; ++i)
          ASSERT_EQ(owners[i]++, 0);
        space.take(begin, size);
        taken.emplace_back(begin, size);
      } else if (!taken.empty()) {
        const auto [position, bytes] = taken.front();
        taken.pop_front();
        for (uint64_t i = 0; i < bytes; ++i)
          --owners[space.offset_of(position) + i];
        space.free_until(taken.empty() ? position + bytes : taken.front().first);
        if (taken.empty()) {
          ASSERT_TRUE(space.find(capacity, begin)) << "an empty ring has room";
        }
      }
    }
  }
}

}  // namespace
}  // namespace nightsweep
