#include "engine/machine_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "engine/host_mapping.h"
#include "engine/read_queue.h"
#include "engine/synthetic_model.h"

namespace nightsweep {

namespace {

using Clock = std::chrono::steady_clock;

// Seconds that one call takes, over calls of at least `least_s` in all; the first warms up. `queue`
// may only queue work.
template <typename Queue>
double time_of(Device& device, double least_s, const Queue& queue) {
  queue();
  device.synchronize();
  uint32_t n = 1;
  for (;;) {
    const Clock::time_point begin = Clock::now();
    for (uint32_t i = 0; i < n; ++i)
      queue();
    device.synchronize();
    const double taken_s = seconds_since(begin);
    if (taken_s >= least_s) return taken_s / n;
    // As many as should do, with some to spare.
    n = taken_s > 0 ? static_cast<uint32_t>(n * std::clamp(1.3 * least_s / taken_s, 2.0, 50.0))
                    : 50 * n;
  }
}

class OperatorProbe {
 public:
  OperatorProbe(Device& device, const ProbeShape& shape)
      : device_(device),
        shape_(shape),
        is_host_(device.shares_host_memory()),
        spread_bytes_(
            shape.spread_bytes > 0 ? shape.spread_bytes
            : is_host_             ? 192 * kMiB
                                   : 512 * kMiB),
        least_s_(is_host_ ? 0.06 : 0.02),
        row_counts_(
            is_host_ ? std::vector<uint32_t>{1, 4, 16, 64, 256}
                     : std::vector<uint32_t>{1, 8, 16, 32, 64, 128, 256, 512}) {
    const uint32_t max_rows = row_counts_.back();
    const uint32_t q_dim = shape.n_heads * shape.head_dim;
    const uint32_t max_cols = std::max(shape.n_cols, q_dim);
    input_ = device.allocate(size_t{max_rows} * max_cols * sizeof(float));
    const std::vector<float> values(size_t{max_rows} * max_cols, 0.5F);
    device.upload(values.data(), values.size() * sizeof(float), input_->data());
    output_ = device.allocate(size_t{max_rows} * std::max(shape.n_rows, q_dim) * sizeof(float));
    device.reserve(max_rows, max_cols);
  }

  MachineRates run() {
    rates_.device = device_.description();
    for (const QuantType type : shape_.types)
      measure_linear(type);
    measure_small_operator();
    measure_attention();
    return std::move(rates_);
  }

 private:
  MatrixView view(QuantType type, WeightLayout layout, const std::byte* data) const {
    return {type, layout, shape_.n_rows, shape_.n_cols, data};
  }

  void measure_linear(QuantType type) {
    if (shape_.n_cols % quant_traits(type).block_elems != 0) return;
    const uint64_t file_bytes = quant_bytes(type, shape_.n_cols) * shape_.n_rows;
    const uint64_t packed_bytes = device_.packed_bytes(type, shape_.n_rows, shape_.n_cols);
    const uint64_t stride = (packed_bytes + 255) / 256 * 256;
    // As many matrices as no cache holds.
    const auto n_matrices =
        static_cast<uint32_t>(std::max<uint64_t>(2, spread_bytes_ / stride + 1));
    auto packed = device_.allocate(stride * n_matrices);
    auto file = device_.allocate_host(file_bytes);
    const std::string blocks = synthetic_blocks(type, std::min(file_bytes, 8 * kMiB));
    for (uint64_t at = 0; at < file_bytes; at += blocks.size())
      std::copy_n(
          reinterpret_cast<const std::byte*>(blocks.data()),
          std::min<uint64_t>(blocks.size(), file_bytes - at), file->data() + at);
    std::vector<MatrixView> matrices;
    for (uint32_t i = 0; i < n_matrices; ++i) {
      std::byte* const at = packed->data() + i * stride;
      device_.pack(view(type, WeightLayout::file, file->data()), at);
      matrices.push_back(view(type, WeightLayout::packed, at));
    }
    device_.synchronize();
    rates_.linear[type] = curve(matrices);
    const std::vector<LinearRate>& curve_found = rates_.linear[type];
    const double n_weights = static_cast<double>(shape_.n_rows) * shape_.n_cols;
    rates_.memory_rate = std::max(
        rates_.memory_rate,
        curve_found.front().weights_per_s * static_cast<double>(packed_bytes) / n_weights);
    for (const LinearRate& rate : curve_found)
      rates_.flops = std::max(rates_.flops, 2 * rate.rows * rate.weights_per_s);
    if (is_host_) {
      measure_streamed(type, *file, file_bytes);
    } else {
      auto streamed = device_.allocate(file_bytes);
      device_.upload(file->data(), file_bytes, streamed->data());
      const double taken_s = time_of(device_, least_s_, [&] {
        device_.repack(view(type, WeightLayout::file, streamed->data()), packed->data());
      });
      const double rate = static_cast<double>(file_bytes) / taken_s;
      // The slowest type's: a model mixes them.
      if (rates_.repack_rate == 0 || rate < rates_.repack_rate) rates_.repack_rate = rate;
    }
  }

  // Weights that the CPU reads where the disk has put them.
  void measure_streamed(QuantType type, DeviceMemory& file, uint64_t file_bytes) {
    const auto n_matrices = static_cast<uint32_t>(spread_bytes_ / file_bytes + 1);
    auto memory = device_.allocate(file_bytes * n_matrices);
    std::vector<MatrixView> matrices;
    for (uint32_t i = 0; i < n_matrices; ++i) {
      std::byte* const at = memory->data() + i * file_bytes;
      std::copy_n(file.data(), file_bytes, at);
      matrices.push_back(view(type, WeightLayout::file, at));
    }
    rates_.linear_streamed[type] = curve(matrices);
  }

  std::vector<LinearRate> curve(const std::vector<MatrixView>& matrices) {
    std::vector<LinearRate> found;
    for (const uint32_t rows : row_counts_) {
      size_t next = 0;
      const double taken_s = time_of(device_, least_s_, [&] {
        device_.set_input(input_->floats(), rows, shape_.n_cols);
        const LinearPart part{
            .weight = matrices[next++ % matrices.size()],
            .out = output_->floats(),
            .out_stride = shape_.n_rows};
        device_.linear({&part, 1});
      });
      const double n_weights = static_cast<double>(shape_.n_rows) * shape_.n_cols;
      found.push_back({.rows = rows, .weights_per_s = n_weights / taken_s});
    }
    return found;
  }

  void measure_small_operator() {
    rates_.operator_s = time_of(device_, least_s_ / 4, [&] {
      device_.swiglu(input_->floats(), input_->floats(), 64, output_->floats());
    });
  }

  void measure_attention() {
    constexpr uint32_t kContext = 512;
    const uint32_t n_sequences = is_host_ ? 8 : 64;
    const double decode_s = attention_s(n_sequences, 1, kContext);
    const KvShape kv{
        .type = shape_.kv_type, .n_kv_heads = shape_.n_kv_heads, .head_dim = shape_.head_dim};
    const double kv_bytes = static_cast<double>(device_.kv_page_bytes(kv)) / kKvPageTokens;
    rates_.attention_rate = kv_bytes * n_sequences * kContext / decode_s;
    rates_.attention_s = attention_s(1, 1, kKvPageTokens);
    const uint32_t chunk = row_counts_.back();
    const double prefill_s = attention_s(1, chunk, kContext);
    const double pairs = static_cast<double>(chunk) * (kContext - chunk / 2.0);
    rates_.attention_flops = 4.0 * shape_.n_heads * shape_.head_dim * pairs / prefill_s;
  }

  // Of one layer: the last `rows` positions of each sequence attend.
  double attention_s(uint32_t n_sequences, uint32_t rows, uint32_t context) {
    const KvShape kv{
        .type = shape_.kv_type, .n_kv_heads = shape_.n_kv_heads, .head_dim = shape_.head_dim};
    const uint32_t n_pages = (context + kKvPageTokens - 1) / kKvPageTokens;
    const size_t page_bytes = device_.kv_page_bytes(kv);
    auto pages = device_.allocate(page_bytes * n_pages * n_sequences);
    const std::vector<std::byte> zeros(page_bytes);
    for (uint32_t page = 0; page < n_pages * n_sequences; ++page)
      device_.upload(zeros.data(), page_bytes, pages->data() + page * page_bytes);
    std::vector<uint32_t> numbers(size_t{n_pages} * n_sequences);
    std::iota(numbers.begin(), numbers.end(), 0U);
    std::vector<std::span<const uint32_t>> tables;
    std::vector<uint32_t> positions;
    std::vector<uint32_t> sequences;
    for (uint32_t s = 0; s < n_sequences; ++s) {
      tables.emplace_back(numbers.data() + size_t{s} * n_pages, n_pages);
      for (uint32_t row = 0; row < rows; ++row) {
        positions.push_back(context - rows + row);
        sequences.push_back(s);
      }
    }
    const KvLayer layer{.shape = kv, .pages = pages->data(), .page_bytes = page_bytes};
    device_.begin_step({positions, sequences, tables});
    return time_of(device_, least_s_, [&] {
      device_.attention(layer, input_->floats(), shape_.n_heads, 0.1F, output_->floats());
    });
  }

  Device& device_;
  const ProbeShape& shape_;
  const bool is_host_;
  const uint64_t spread_bytes_;
  const double least_s_;
  const std::vector<uint32_t> row_counts_;
  std::unique_ptr<DeviceMemory> input_;
  std::unique_ptr<DeviceMemory> output_;
  MachineRates rates_;
};

uint64_t file_size_of(const std::string& path) {
  std::error_code error;
  const uint64_t size_bytes = std::filesystem::file_size(path, error);
  if (error) fail(ErrorKind::model, "{}: {}", path, error.message());
  return size_bytes;
}

// Bytes a second with so many reads in flight.
double read_rate(FileReader& reader, uint64_t file_bytes, uint32_t turn, double least_s) {
  const uint64_t read_bytes = std::clamp(
      align_down(file_bytes / 16, kDirectAlignment), kDirectAlignment, ReadQueue::kPieceBytes);
  const uint64_t n_places = file_bytes / read_bytes;
  const uint64_t n_buffers = 2ULL * reader.depth();
  std::vector<std::byte> memory(n_buffers * read_bytes + kDirectAlignment);
  std::byte* const buffers =
      memory.data() +
      (kDirectAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kDirectAlignment);
  std::vector<uint64_t> free_buffers(n_buffers);
  std::iota(free_buffers.begin(), free_buffers.end(), uint64_t{0});
  const RegisteredMemory registered(reader, {buffers, n_buffers * read_bytes});
  ReadQueue queue(reader);
  uint64_t n_bytes = 0;
  // All over the file, and other places each turn: a drive, or the host of a virtual one, remembers
  // what it has just read, and it is the file's beginning that everybody reads. Multiples of the
  // golden ratio less its whole part lie apart, however many they are.
  constexpr uint64_t kRunReads = 32;
  constexpr double kGolden = 0.6180339887498949;
  double run = 0.07 * (turn + 1);
  uint64_t n_read = 0;
  const auto next_place = [&] {
    if (n_read > 0 && n_read % kRunReads == 0) run = std::fmod(run + kGolden, 1.0);
    const auto first = static_cast<uint64_t>(run * static_cast<double>(n_places));
    return (first + n_read++ % kRunReads) % n_places;
  };
  const Clock::time_point begin = Clock::now();
  while (seconds_since(begin) < least_s || n_bytes == 0) {
    while (queue.wants_more() && !free_buffers.empty()) {
      const uint64_t buffer = free_buffers.back();
      free_buffers.pop_back();
      queue.push(
          {.file = 0,
           .offset = next_place() * read_bytes,
           .size_bytes = read_bytes,
           .needed_bytes = read_bytes,
           .into = buffers + buffer * read_bytes,
           .tag = buffer});
    }
    for (const uint64_t buffer : queue.advance()) {
      free_buffers.push_back(buffer);
      n_bytes += read_bytes;
    }
  }
  return static_cast<double>(n_bytes) / seconds_since(begin);
}

constexpr double kLinkTime = 0.1;  // seconds

}  // namespace

double
probe_copies(Device& device, const std::byte* from, std::span<std::byte> to, double least_s) {
  constexpr uint64_t kPieceBytes = 8 * kMiB;  // as a sweep copies
  const auto event = device.make_event();
  const double taken_s = time_of(device, least_s, [&] {
    for (uint64_t at = 0; at < to.size(); at += kPieceBytes)
      device.queue_copy(from + at, std::min(kPieceBytes, to.size() - at), to.data() + at);
    device.record(*event, WorkQueue::copies);
    device.wait(*event);
  });
  return static_cast<double>(to.size()) / taken_s;
}

LinkProbe probe_link(Device& device) {
  constexpr uint64_t kBytes = 64 * kMiB;
  LinkProbe found;
  const Clock::time_point before = Clock::now();
  const auto host = device.allocate_host(4 * kBytes);
  found.pinning_s_per_gib = seconds_since(before) * 1024 * kMiB / (4 * kBytes);
  const auto memory = device.allocate(kBytes);
  found.to_device = probe_copies(device, host->data(), {memory->data(), kBytes}, kLinkTime);
  found.from_device = kBytes / time_of(device, kLinkTime, [&] {
                        (void)device.read_back(memory->floats(), kBytes / sizeof(float));
                      });
  return found;
}

void probe_registered(Device& device, const std::string& path, LinkProbe& found) {
  const uint64_t file_bytes = file_size_of(path);
  const uint64_t size_bytes = std::min(file_bytes, 256 * kMiB);
  const FileSet files = FileSet::open({path}, {file_bytes}, 0);
  const std::vector<FileSpan> spans = {{.begin = 0, .end = size_bytes}};
  try {
    // The first brings the file into the page cache.
    std::make_unique<HostMapping>(files, spans, device).reset();
    const Clock::time_point begin = Clock::now();
    const HostMapping mapping(files, spans, device);
    found.registering_s_per_gib =
        seconds_since(begin) * 1024 * kMiB / static_cast<double>(size_bytes);
    const auto memory = device.allocate(size_bytes);
    found.registered =
        probe_copies(device, mapping.at(0, 0), {memory->data(), size_bytes}, kLinkTime);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    found.why_not_registered = error.what();
  }
}

double DiskProbe::best() const {
  double most = 0;
  for (const Depth& depth : depths)
    most = std::max(most, depth.bytes_per_s);
  return most;
}

DiskProbe
probe_disk(const std::string& path, const std::vector<uint32_t>& depths, double seconds_a_depth) {
  const uint64_t file_bytes = file_size_of(path);
  if (file_bytes < kDirectAlignment) {
    fail(
        ErrorKind::usage, "{}: expected a file of at least {} bytes to measure the disk, found {}",
        path, kDirectAlignment, file_bytes);
  }
  DiskProbe found;
  for (uint32_t turn = 0; turn < depths.size(); ++turn) {
    const auto reader =
        open_file_reader({.paths = {path}, .file_bytes = {file_bytes}, .depth = depths[turn]});
    found.source = reader->description();
    found.depths.push_back(
        {.n_reads = depths[turn],
         .bytes_per_s = read_rate(*reader, file_bytes, turn, seconds_a_depth)});
  }
  return found;
}

ProbeShape probe_shape_of(const GgufModel& gguf, const ModelConfig& config, KvType kv_type) {
  ProbeShape shape;
  shape.n_rows = config.ff_dim;
  shape.n_cols = config.dim;
  shape.n_heads = config.n_heads;
  shape.n_kv_heads = config.n_kv_heads;
  shape.head_dim = config.head_dim;
  shape.kv_type = kv_type;
  shape.types.clear();
  for (const GgufTensor& tensor : gguf.tensors()) {
    const auto type = static_cast<QuantType>(tensor.ggml_type);
    const bool is_known = std::ranges::find(shape.types, type) != shape.types.end();
    if (tensor.dims.size() == 2 && !is_known) shape.types.push_back(type);
  }
  return shape;
}

MachineRates probe_operators(Device& device, const ProbeShape& shape) {
  return OperatorProbe(device, shape).run();
}

}  // namespace nightsweep
