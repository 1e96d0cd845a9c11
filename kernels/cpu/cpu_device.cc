// The CPU device: checks, shares work among threads, and leaves the arithmetic to the kernels.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/input.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace nightsweep {
namespace {

using namespace cpu;  // NOLINT(google-build-using-namespace): the parts of this device

// Below this many values a parallel region costs more than it saves.
constexpr size_t kSerialValues = 8192;
// Pieces a thread gets of one operator: enough that a disturbed thread does not hold up the rest.
constexpr uint32_t kChunksPerThread = 8;

// Shares of a core's second-level cache (1 to 2 MiB).
constexpr size_t kCachedInputBytes = size_t{1} << 20;
constexpr size_t kCachedPanelBytes = size_t{512} << 10;

// Bytes ahead of the ones in use. One row then reads weights as fast as plain loads do (15.5 GB/s
// a thread, 13.5 without); 16 rows of Q6_K run at 218 GOP/s a thread in place of 145.
constexpr size_t kPrefetchAhead = 2048;

uint32_t count_usable_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
    return std::max(1U, static_cast<uint32_t>(CPU_COUNT(&cpus)));
  }
  // More than CPU_SETSIZE processors.
  return std::max(1U, std::thread::hardware_concurrency());
}

uint32_t panel_count(uint32_t n_rows) {
  return (n_rows + kPanelRows - 1) / kPanelRows;
}

bool is_float(QuantType type) {
  return type == QuantType::f32 || type == QuantType::f16 || type == QuantType::bf16;
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options)
      : math_(options.math),
        kernels_(choose_kernels(options.instruction_set)),
        pool_(options.n_threads != 0 ? options.n_threads : count_usable_cpus()),
        input_(kernels_, pool_),
        attention_(kernels_, pool_) {}

  std::string description() const override {
    return format(
        "cpu, {}, {} thread{}, {}", kernels_.name, pool_.n_threads(),
        pool_.n_threads() == 1 ? "" : "s", math_ == MathMode::fast ? "fast" : "exact");
  }

  // Instruction sets and threads give the same bits.
  std::string kernel_version() const override {
    return math_ == MathMode::fast ? "cpu-fast-1" : "cpu-exact-1";
  }

  std::unique_ptr<DeviceMemory> allocate(size_t size_bytes) override {
    return allocate_memory(size_bytes);
  }

  bool shares_host_memory() const override { return true; }
  void upload(const void* from, size_t size_bytes, std::byte* to) override {
    std::memcpy(to, from, size_bytes);
  }
  const float* read_back(const float* from, size_t /*count*/) override { return from; }

  size_t packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) const override {
    return panel_count(n_rows) * panel_bytes(type, n_cols);
  }

  void pack(const MatrixView& file, std::byte* packed) override {
    const size_t row_bytes = quant_bytes(file.type, file.n_cols);
    const size_t one_panel = panel_bytes(file.type, file.n_cols);
    pool_.run(panel_count(file.n_rows), [&](uint32_t panel, uint32_t) {
      const uint32_t first = panel * kPanelRows;
      pack_panel(
          file.type, file.data + first * row_bytes, std::min(kPanelRows, file.n_rows - first),
          file.n_cols, packed + panel * one_panel);
    });
  }

  size_t kv_page_bytes(const KvShape& shape) const override {
    return kv_head_layout(shape).size_bytes * shape.n_kv_heads;
  }

  void reserve(uint32_t max_rows, uint32_t max_cols) override {
    input_.reserve(max_rows, max_cols);
    max_panel_bytes_ = panel_bytes(QuantType::f32, max_cols);
    panel_scratch_ = allocate_memory(max_panel_bytes_ * pool_.n_threads());
  }

  void begin_step(const StepRows& rows) override { step_ = rows; }

  void embed(const MatrixView& table, std::span<const uint32_t> ids, float* out) override {
    const size_t row_bytes = quant_bytes(table.type, table.n_cols);
    const size_t one_panel = panel_bytes(table.type, table.n_cols);
    const auto embed_row = [&](uint32_t i, uint32_t thread) {
      const uint32_t id = ids[i];
      const std::byte* row = table.data + id * row_bytes;
      if (table.layout == WeightLayout::packed) {
        std::byte* const scratch = panel_scratch(thread);
        unpack_row(
            table.type, table.data + id / kPanelRows * one_panel, id % kPanelRows, table.n_cols,
            scratch);
        row = scratch;
      }
      dequantize(table.type, row, out + size_t{i} * table.n_cols, table.n_cols);
    };
    run_rows(static_cast<uint32_t>(ids.size()), table.n_cols, embed_row);
  }

  void rms_norm(
      const float* x,
      const float* weight,
      float epsilon,
      uint32_t rows,
      uint32_t dim,
      float* out) override {
    run_rows(rows, dim, [&](uint32_t row, uint32_t) {
      kernels_.rms_norm(x + size_t{row} * dim, weight, epsilon, dim, out + size_t{row} * dim);
    });
  }

  void set_input(const float* x, uint32_t rows, uint32_t n_cols) override {
    input_.set(x, rows, n_cols);
  }

  void linear(std::span<const LinearPart> parts) override {
    uint32_t n_panels = 0;
    for (const LinearPart& part : parts) {
      if (part.weight.n_cols != input_.n_cols()) {
        fail(
            ErrorKind::internal, "a matrix of {} columns was applied to an input of {}",
            part.weight.n_cols, input_.n_cols());
      }
      // Both forms of the input are made before the threads start.
      input_for(part);
      n_panels += panel_count(part.weight.n_rows);
    }
    const uint32_t per_chunk = std::max(1U, n_panels / (kChunksPerThread * pool_.n_threads()));
    pool_.run((n_panels + per_chunk - 1) / per_chunk, [&](uint32_t chunk, uint32_t thread) {
      uint32_t skip = chunk * per_chunk;
      uint32_t left = per_chunk;
      for (const LinearPart& part : parts) {
        const uint32_t count = panel_count(part.weight.n_rows);
        if (skip < count && left > 0) {
          const uint32_t n = std::min(left, count - skip);
          run_panels(part, skip, n, thread);
          left -= n;
        }
        skip -= std::min(skip, count);
      }
    });
  }

  void rope(const RopeShape& shape, float* x) override {
    rope_table_.prepare(shape, step_.positions);
    const uint32_t row_floats = shape.n_heads * shape.head_dim;
    run_rows(step_.count(), row_floats, [&](uint32_t row, uint32_t) {
      float* head = x + size_t{row} * row_floats;
      for (uint32_t h = 0; h < shape.n_heads; ++h, head += shape.head_dim) {
        kernels_.rope(
            head, rope_table_.cosines(row), rope_table_.sines(row), shape.n_rot / 2,
            shape.half_split);
      }
    });
  }

  void store_kv(const KvLayer& layer, const float* k, const float* v) override {
    attention_.store(layer, step_, k, v);
  }

  void copy_kv_pages(
      const KvLayer& first,
      uint32_t n_layers,
      size_t layer_bytes,
      std::span<const KvPageCopy> copies) override {
    const size_t page_bytes = first.page_bytes;
    const auto n_pages = static_cast<uint32_t>(copies.size()) * n_layers;
    pool_.run(n_pages, [&](uint32_t i, uint32_t) {
      const KvPageCopy& copy = copies[i / n_layers];
      std::byte* const pages = first.pages + layer_bytes * (i % n_layers);
      std::memcpy(pages + page_bytes * copy.to, pages + page_bytes * copy.from, page_bytes);
    });
  }

  void attention(const KvLayer& layer, const float* q, uint32_t n_heads, float scale, float* out)
      override {
    attention_.run(layer, step_, q, n_heads, scale, out);
  }

  void swiglu(const float* gate, const float* up, size_t count, float* out) override {
    constexpr size_t kPiece = 4096;
    const auto n_pieces = static_cast<uint32_t>((count + kPiece - 1) / kPiece);
    run_rows(n_pieces, kPiece, [&](uint32_t piece, uint32_t) {
      const size_t first = piece * kPiece;
      kernels_.swiglu(gate + first, up + first, std::min(kPiece, count - first), out + first);
    });
  }

  void gather_rows(const float* x, std::span<const uint32_t> rows, uint32_t dim, float* out)
      override {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(out + i * dim, x + size_t{rows[i]} * dim, dim * sizeof(float));
    }
  }

  void synchronize() override {}

 private:
  template <typename Body>
  void run_rows(uint32_t n_rows, size_t row_floats, const Body& body) {
    if (n_rows * row_floats < kSerialValues) {
      for (uint32_t row = 0; row < n_rows; ++row)
        body(row, 0U);
      return;
    }
    const uint32_t per_chunk = std::max(1U, n_rows / (kChunksPerThread * pool_.n_threads()));
    pool_.run((n_rows + per_chunk - 1) / per_chunk, [&](uint32_t chunk, uint32_t thread) {
      const uint32_t end = std::min(n_rows, (chunk + 1) * per_chunk);
      for (uint32_t row = chunk * per_chunk; row < end; ++row)
        body(row, thread);
    });
  }

  bool is_rounded(const LinearPart& part) const {
    return math_ == MathMode::fast && !is_float(part.weight.type);
  }

  std::byte* panel_scratch(uint32_t thread) {
    return panel_scratch_->data() + thread * max_panel_bytes_;
  }

  const InputTiles& input_for(const LinearPart& part) {
    return is_rounded(part) ? input_.rounded() : input_.in_float();
  }

  // Panels outside and rows inside, so that a panel is read once. When the input itself is too
  // large for the cache, as many panels as fit stay there and the input passes by them.
  void run_panels(const LinearPart& part, uint32_t first, uint32_t count, uint32_t thread) {
    const InputTiles& input = input_for(part);
    const bool is_packed = part.weight.layout == WeightLayout::packed;
    if (!is_packed || input_.size_bytes() <= kCachedInputBytes) {
      for (uint32_t i = 0; i < count; ++i)
        run_panel(part, first + i, input, thread);
      return;
    }
    const size_t one_panel = panel_bytes(part.weight.type, part.weight.n_cols);
    const uint32_t group = std::max(1U, static_cast<uint32_t>(kCachedPanelBytes / one_panel));
    for (uint32_t begin = first; begin < first + count; begin += group) {
      const uint32_t end = std::min(begin + group, first + count);
      for (uint32_t t = 0; t < input.n_tiles; ++t) {
        const InputTiles tile{input.n_cols, 1, input.tiles + t};
        for (uint32_t panel = begin; panel < end; ++panel)
          run_panel(part, panel, tile, thread);
      }
    }
  }

  void run_panel(const LinearPart& part, uint32_t panel, const InputTiles& input, uint32_t thread) {
    const MatrixView& weight = part.weight;
    const uint32_t first = panel * kPanelRows;
    PanelTask task;
    task.n_outputs = std::min(kPanelRows, weight.n_rows - first);
    if (weight.layout == WeightLayout::packed) {
      task.panel = weight.data + panel * panel_bytes(weight.type, weight.n_cols);
      task.ahead = task.panel + kPrefetchAhead;
    } else {
      std::byte* const scratch = panel_scratch(thread);
      const std::byte* rows = weight.data + first * quant_bytes(weight.type, weight.n_cols);
      pack_panel(weight.type, rows, task.n_outputs, weight.n_cols, scratch);
      task.panel = scratch;
      // The rows of the next panel come into the cache while this one computes.
      task.ahead = rows + kPanelRows * quant_bytes(weight.type, weight.n_cols);
    }
    task.bias = part.bias == nullptr ? nullptr : part.bias + first;
    task.out = part.out + part.out_column + first;
    task.out_stride = part.out_stride;
    task.accumulate = part.accumulate;
    task.input = &input;
    is_rounded(part) ? kernels_.panel_rounded(weight.type, task)
                     : kernels_.panel_float(weight.type, task);
  }

  const MathMode math_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  Input input_;
  Attention attention_;
  RopeTable rope_table_;
  StepRows step_;
  std::unique_ptr<DeviceMemory> panel_scratch_;  // one panel for each thread
  size_t max_panel_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace nightsweep
