// The CUDA device: checks, tables of a step, and the order of work; the arithmetic is the kernels'.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/fresh_weights.h"
#include "kernels/cuda/host_copy.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/linear_layout.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/packing.h"
#include "kernels/cuda/page_copy.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/stream.h"
#include "kernels/device.h"

namespace nightsweep {
namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace): the parts of this device

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(Event::Notes notes) : event(notes) {}
  Event event;
};

const Event& event_of(const DeviceEvent& event) {
  return static_cast<const CudaEvent&>(event).event;
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options)
      : gpu_(open_gpu(options.index)),
        staging_(stream_.get()),
        packing_(linear_, stream_, copies_),
        rope_(stream_.get()),
        attention_(gpu_, staging_, stream_.get()),
        picker_(staging_, stream_.get()) {}

  // Work in flight may use what is about to be freed.
  ~CudaDevice() override { (void)cudaStreamSynchronize(stream_.get()); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::string description() const override {
    return format(
        "cuda:{}, {}, compute capability {}.{}, {}", gpu_.index, gpu_.name, gpu_.capability / 10,
        gpu_.capability % 10, size_text(gpu_.memory_bytes));
  }

  std::string pci_address() const override { return gpu_.pci_address; }

  // The units for exponentials and matrices may round otherwise in another generation.
  std::string kernel_version() const override { return format("cuda-3-sm{}", gpu_.capability); }

  uint64_t free_bytes() const override {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    return free_bytes;
  }
  DeviceLimits limits() const override { return gpu_.limits; }
  std::unique_ptr<DeviceMemory> allocate(size_t size_bytes) override {
    return allocate_on_gpu(size_bytes);
  }
  std::unique_ptr<DeviceMemory> allocate_host(size_t size_bytes) override {
    become_current();
    return allocate_for_copies(size_bytes);
  }
  bool shares_host_memory() const override { return false; }

  // What fits a slot goes like a table of a step. More is waited for, because `from` may be
  // page-locked and change at once; nothing of a step that decodes is as large.
  void upload(const void* from, size_t size_bytes, std::byte* to) override {
    if (size_bytes <= Staging::kSlotBytes &&
        reinterpret_cast<uintptr_t>(to) % kHostCopyAlignment == 0) {
      staging_.send_to(from, size_bytes, to);
      return;
    }
    check(
        cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, stream_.get()),
        format("copying {} bytes to the GPU", size_bytes));
    wait_for_stream("a copy to the GPU");
  }

  const float* read_back(const float* from, size_t count) override {
    const size_t size_bytes = count * sizeof(float);
    if (read_back_ == nullptr || read_back_->size_bytes() < size_bytes) {
      read_back_ = allocate_for_copies(size_bytes);
    }
    check(
        cudaMemcpyAsync(
            read_back_->data(), from, size_bytes, cudaMemcpyDeviceToHost, stream_.get()),
        format("copying {} values from the GPU", count));
    wait_for_stream("values from the GPU");
    note_idle();
    return read_back_->floats();
  }

  size_t packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) const override {
    return LinearOperator::packed_bytes(type, n_rows, n_cols);
  }
  void pack(const MatrixView& file, std::byte* packed) override {
    packing_.pack(file, packed);
    fresh_.add(packed, packed_bytes(file.type, file.n_rows, file.n_cols));
  }

  size_t kv_page_bytes(const KvShape& shape) const override { return cuda_kv_page_bytes(shape); }

  uint64_t reserve_bytes(uint32_t max_rows, uint32_t max_cols) const override {
    return LinearOperator::input_bytes(max_rows, max_cols) + linear_.workspace_bytes() +
           Attention::workspace_bytes() + Rope::table_bytes(max_rows);
  }
  void reserve(uint32_t max_rows, uint32_t max_cols) override {
    input_memory_ = allocate_on_gpu(LinearOperator::input_bytes(max_rows, max_cols));
    // Rows that nobody writes are read beside those that are.
    check(
        cudaMemsetAsync(input_memory_->data(), 0, input_memory_->size_bytes(), stream_.get()),
        "clearing the linear operator's input");
    linear_memory_ = allocate_on_gpu(linear_.workspace_bytes());
    linear_.set_workspace(linear_memory_->data(), stream_.get());
    attention_.reserve();
    rope_.reserve(max_rows);
    max_rows_ = max_rows;
    max_cols_ = max_cols;
  }

  void begin_step(const StepRows& rows) override {
    const uint32_t n_rows = rows.count();
    std::vector<uint32_t> table(size_t{2} * n_rows);
    std::copy(rows.positions.begin(), rows.positions.end(), table.begin());
    for (uint32_t row = 0; row < rows.sequences.size(); ++row) {
      table[n_rows + row] =
          rows.page_tables[rows.sequences[row]][rows.positions[row] / kKvPageTokens];
    }
    staging_.together([&] {
      const uint32_t* const sent = staging_.send(std::span<const uint32_t>(table));
      rope_.begin_step({.n_rows = n_rows, .positions = sent, .pages = sent + n_rows});
      attention_.begin_step(rows);
    });
  }

  void embed(const MatrixView& table, std::span<const uint32_t> ids, float* out) override {
    end_idle();
    // Every block reads its own.
    constexpr size_t kFew = 256;
    const uint32_t* const sent = ids.size() <= kFew ? staging_.leave(ids) : staging_.send(ids);
    linear_.embed(table, sent, static_cast<uint32_t>(ids.size()), out, stream_.get());
  }

  void rms_norm(
      const float* x,
      const float* weight,
      float epsilon,
      uint32_t rows,
      uint32_t dim,
      float* out) override {
    linear_.rms_norm(x, weight, epsilon, rows, dim, out, stream_.get());
  }

  void set_input(const float* x, uint32_t rows, uint32_t n_cols) override {
    end_idle();
    require_room(rows, n_cols);
    input_ = linear_.prepare(x, rows, n_cols, input_memory_->data(), stream_.get());
  }
  void norm_input(
      const float* x,
      const float* weight,
      float epsilon,
      uint32_t rows,
      uint32_t dim,
      float* /*normed*/) override {
    end_idle();
    require_room(rows, dim);
    input_ = linear_.prepare_rms_norm(
        x, weight, epsilon, rows, dim, nullptr, input_memory_->data(), stream_.get());
  }
  void gate_input(const float* gate, const float* up, uint32_t rows, uint32_t dim, float* /*gated*/)
      override {
    require_room(rows, dim);
    input_ =
        linear_.prepare_gated(gate, up, rows, dim, nullptr, input_memory_->data(), stream_.get());
  }

  void linear(std::span<const LinearPart> parts) override {
    end_idle();
    const bool is_fresh = std::ranges::any_of(parts, [&](const LinearPart& part) {
      const MatrixView& weight = part.weight;
      return fresh_.holds(weight.data, packed_bytes(weight.type, weight.n_rows, weight.n_cols));
    });
    linear_.apply(input_, parts, stream_.get(), is_fresh ? WeightAge::fresh : WeightAge::settled);
  }

  void rope(const RopeShape& shape, float* x) override { rope_.apply(shape, x); }
  void store_kv(const KvLayer& layer, const float* k, const float* v) override {
    rope_.store(layer, k, v);
  }
  void rope_and_store(
      const RopeShape& q_shape,
      const RopeShape& k_shape,
      const KvLayer& layer,
      float* q,
      float* k,
      const float* v) override {
    rope_.apply_and_store(q_shape, k_shape, layer, q, k, v);
  }
  void copy_kv_pages(
      const KvLayer& first,
      uint32_t n_layers,
      size_t layer_bytes,
      std::span<const KvPageCopy> copies) override {
    end_idle();
    cuda::copy_pages(first, n_layers, layer_bytes, copies, stream_.get());
  }
  void attention(const KvLayer& layer, const float* q, uint32_t n_heads, float scale, float* out)
      override {
    attention_.run(layer, q, n_heads, scale, out);
  }
  void attention_input(
      const KvLayer& layer,
      const float* q,
      uint32_t rows,
      uint32_t n_heads,
      float scale,
      float* /*attended*/) override {
    const uint32_t n_cols = n_heads * layer.shape.head_dim;
    require_room(rows, n_cols);
    input_ = linear_.input_at(input_memory_->data(), rows, n_cols);
    attention_.run(layer, q, n_heads, scale, place_of(input_));
  }

  void swiglu(const float* gate, const float* up, size_t count, float* out) override {
    cuda::swiglu(gate, up, count, out, stream_.get());
  }
  void gather_rows(const float* x, std::span<const uint32_t> rows, uint32_t dim, float* out)
      override {
    end_idle();
    cuda::gather_rows(x, rows, dim, out, stream_.get());
  }

  bool can_pick() const override { return true; }
  void pick(float* logits, uint32_t n_vocab, std::span<const PickRow> rows, std::span<Pick> picks)
      override {
    picker_.pick(logits, n_vocab, rows, picks);
    if (rows.empty()) return;
    fresh_.clear();  // it has waited
    note_idle();
  }

  void synchronize() override {
    wait_for_stream("the GPU");
    note_idle();
  }
  double idle_s() const override { return idle_s_; }

  std::unique_ptr<HostRegistration> register_host(const std::byte* from, size_t size_bytes)
      override {
    become_current();
    return register_read_only(from, size_bytes);
  }
  void queue_copy(const std::byte* from, size_t size_bytes, std::byte* to) override {
    become_current();
    check(
        cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, copies_.get()),
        format("copying {} bytes of weights", size_bytes));
  }
  std::unique_ptr<DeviceEvent> make_event() override {
    become_current();
    return std::make_unique<CudaEvent>(Event::Notes::nothing);
  }
  std::unique_ptr<DeviceEvent> make_timed_event() override {
    become_current();
    return std::make_unique<CudaEvent>(Event::Notes::time);
  }
  double seconds_between(const DeviceEvent& from, const DeviceEvent& to) override {
    return event_of(from).seconds_until(event_of(to));
  }
  void record(DeviceEvent& event, WorkQueue queue) override {
    become_current();
    static_cast<CudaEvent&>(event).event.record(stream_of(queue));
  }
  void hold_back(WorkQueue queue, const DeviceEvent& event) override {
    become_current();
    event_of(event).hold_back(stream_of(queue));
  }
  void wait(const DeviceEvent& event) override {
    become_current();
    event_of(event).wait();
  }
  void repack(const MatrixView& file, std::byte* packed) override {
    linear_.pack(file, packed, stream_.get());
    fresh_.add(packed, packed_bytes(file.type, file.n_rows, file.n_cols));
  }

 private:
  using Clock = std::chrono::steady_clock;

  void wait_for_stream(const char* for_what) {
    stream_.wait(for_what);
    fresh_.clear();
  }
  void note_idle() {
    if (!idle_since_) idle_since_ = Clock::now();
  }
  // The operators that can be the first behind a wait.
  void end_idle() {
    if (!idle_since_) return;
    idle_s_ += std::chrono::duration<double>(Clock::now() - *idle_since_).count();
    idle_since_.reset();
  }
  // A thread begins with GPU 0.
  void become_current() const {
    check(cudaSetDevice(gpu_.index), format("cudaSetDevice({})", gpu_.index));
  }
  const Stream& stream_of(WorkQueue queue) const {
    return queue == WorkQueue::operators ? stream_ : copies_;
  }
  void require_room(uint32_t rows, uint32_t n_cols) const {
    if (input_memory_ != nullptr &&
        LinearOperator::input_bytes(rows, n_cols) <= input_memory_->size_bytes()) {
      return;
    }
    fail(
        ErrorKind::internal, "an input of {} rows of {}, reserved are {} rows of {}", rows, n_cols,
        max_rows_, max_cols_);
  }

  const GpuInfo gpu_;  // first: it makes the GPU current
  Stream stream_;
  Stream copies_;  // of weights
  Staging staging_;
  LinearOperator linear_;
  Packing packing_;
  Rope rope_;
  Attention attention_;
  Picker picker_;
  std::unique_ptr<DeviceMemory> input_memory_;
  std::unique_ptr<DeviceMemory> linear_memory_;
  std::unique_ptr<DeviceMemory> read_back_;  // grows to the largest piece that was asked for
  PreparedInput input_;
  FreshWeights fresh_;
  uint32_t max_rows_ = 0;
  uint32_t max_cols_ = 0;
  std::optional<Clock::time_point> idle_since_;  // none: operators are at work, or never were
  double idle_s_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace nightsweep
