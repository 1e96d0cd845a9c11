// Device: memory and operators of one backend. Shapes and numbers, no models.
//
// An operator takes row-major float32 activations, last dimension contiguous, in memory of the
// device, and queues its work in order; on the CPU it has run when the call returns. Spans are the
// host's, and may change once the call has returned. Calls come from one thread. Allocation
// happens before the first step, never inside one.
//
// THE CONTRACT OF BATCH INVARIANCE. The bits of an output row depend on that row's inputs alone:
//   1. one order of summation along the inner dimension, set by the weight's type and shape,
//      never by the number of rows, threads, slices, or by timing;
//   2. the layout in which a weight stands (file or packed) and the cut of a matrix into slices
//      of rows change no bit;
//   3. attention walks the KV pages by absolute position and merges them in that order, so chunks
//      of a prefill agree with each other and with decoding;
//   4. scales of rounded activations come from the row alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/quant.h"

namespace nightsweep {

// exact: float32 activations and sums, the yardstick; the same bits on every CPU.
// fast: the device's best arithmetic; on the CPU activations rounded to 8 bits in blocks of 32.
enum class MathMode { exact, fast };

enum class WeightLayout {
  file,    // rows of blocks, as in the GGUF file
  packed,  // the device's own order, made by Device::pack; the same number of bytes or more
};

// Rows [first, first + n_rows) of a weight matrix; y_o is the dot product of row o with x.
struct MatrixView {
  QuantType type = QuantType::f32;
  WeightLayout layout = WeightLayout::file;
  uint32_t n_rows = 0;  // outputs
  uint32_t n_cols = 0;  // inputs
  const std::byte* data = nullptr;
};

// Slices of a matrix begin at multiples of this many rows, so that packed panels are never cut.
inline constexpr uint32_t kPanelRows = 16;

// One matrix applied to the current input: out[r][column + o] = x[r] . w[o] (+ bias[o]).
struct LinearPart {
  MatrixView weight;
  const float* bias = nullptr;  // (weight.n_rows) or null
  float* out = nullptr;         // (rows, out_stride)
  uint32_t out_stride = 0;      // floats a row of `out`
  uint32_t out_column = 0;      // where output 0 of this slice goes
  bool accumulate = false;      // add to `out` in place of setting it
};

enum class KvType { f32, f16, q8_0 };
const char* kv_type_name(KvType type);  // "q8_0": as --kv and identities have it

// Shape of the keys and values of one layer. A page holds kKvPageTokens consecutive positions of
// one sequence, the first a multiple of kKvPageTokens. The order inside is the device's.
inline constexpr uint32_t kKvPageTokens = 64;
struct KvShape {
  KvType type = KvType::f16;
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;  // of keys and of values
};

// The pages of one layer: page p begins at pages + p * page_bytes.
struct KvLayer {
  KvShape shape;
  std::byte* pages = nullptr;
  size_t page_bytes = 0;
};

// A page whose content another one gets.
struct KvPageCopy {
  uint32_t from = 0;
  uint32_t to = 0;
};

// The rows of a step, in memory of the host. Rows of one sequence stand together, positions rising
// by one. Tables of several sequences may name the same page: one that nobody writes any more, or
// that earlier rows of this step fill.
struct StepRows {
  std::span<const uint32_t> positions;  // (rows)
  std::span<const uint32_t> sequences;  // (rows) index into page_tables
  std::span<const std::span<const uint32_t>>
      page_tables;  // page numbers of each sequence, by position
  uint32_t count() const { return static_cast<uint32_t>(positions.size()); }
};

struct RopeShape {
  uint32_t n_heads = 0;
  uint32_t head_dim = 0;
  uint32_t n_rot = 0;       // dimensions that turn; the rest passes
  bool half_split = false;  // pairs (j, j + n_rot/2) in place of (2j, 2j + 1)
  // (n_rot / 2) radians a position, all scalings already in it
  std::span<const double> frequencies;
  float magnitude = 1.0F;  // factor on cos and sin
};

// A change of one logit before the choice; the steps come in this order.
struct LogitEdit {
  uint32_t token = 0;
  bool is_banned = false;    // then it cannot be chosen, whatever the rest says
  bool is_repeated = false;  // divided by the row's repetition penalty, multiplied below zero
  float bias = 0;            // added first
  float subtracted = 0;      // last
};

// How one token is chosen from a row of logits: edits, then the highest (lowest id on a tie), or
// temperature, min_p, top_k, top_p and a draw.
struct PickRow {
  uint32_t row = 0;               // of the logits
  float inverse_temperature = 0;  // 0: the highest
  float min_p = 0;
  double top_p = 1;
  uint32_t top_k = 0;  // 0: off; the lower id stays on a tie
  float repetition_penalty = 1;
  double uniform = 0;                // in [0, 1): the draw
  std::span<const LogitEdit> edits;  // at most one a token
};

enum class PickFault : uint32_t {
  none,
  not_a_number,  // a logit is NaN
  infinite,      // no logit is finite, before or after the edits
};

struct Pick {
  uint32_t token = 0;
  PickFault fault = PickFault::none;
};

// Owns memory of a device; aligned to 4096 bytes, so that O_DIRECT may read into it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;
  virtual size_t size_bytes() const = 0;
  float* floats() { return reinterpret_cast<float*>(data()); }
};

// What the hardware can do at most by its own data; 0: not known.
struct DeviceLimits {
  double bytes_per_s = 0;  // of its memory
  double f16_flops = 0;    // products of half, sums in float32: operations a second
};

// Memory of the host that a device knows; it forgets it when this ends.
class HostRegistration {
 public:
  virtual ~HostRegistration() = default;
};

// A place in one of the device's queues of work.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Operators run in order, and copies of weights in an order of their own, beside them.
enum class WorkQueue { operators, copies };

// What a device makes of weights, keys and values, and steps, in bytes. Known without the device,
// so that a machine can be planned that is not here.
class DeviceSizes {
 public:
  virtual ~DeviceSizes() = default;

  // The host may read and write the device's memory, as on the CPU: no staging is needed.
  virtual bool shares_host_memory() const = 0;
  // Bytes that pack() writes for a matrix or slice of this shape.
  virtual size_t packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) const = 0;
  // Bytes of one page of one layer.
  virtual size_t kv_page_bytes(const KvShape& shape) const = 0;
  // What reserve() will take.
  virtual uint64_t reserve_bytes(uint32_t /*max_rows*/, uint32_t /*max_cols*/) const { return 0; }
};

class Device : public DeviceSizes {
 public:
  // "cpu, AVX-512 VNNI, 2 threads, fast": for people.
  virtual std::string description() const = 0;
  // Of a GPU on the PCI bus, "00000000:3b:00.0"; empty: none.
  virtual std::string pci_address() const { return ""; }
  // Changes whenever the bits may change: backend, arithmetic, version of the kernels. Part of
  // the identity of a checkpoint.
  virtual std::string kernel_version() const = 0;

  // Memory of its own that allocate() can still give, in bytes; 0: it shares the host's.
  virtual uint64_t free_bytes() const { return 0; }
  virtual DeviceLimits limits() const { return {}; }
  // Throws Error(device) that says what was asked and which option to change.
  virtual std::unique_ptr<DeviceMemory> allocate(size_t size_bytes) = 0;
  // Memory of the host from which the device copies at its link's full rate (page-locked). May be
  // called by another thread.
  virtual std::unique_ptr<DeviceMemory> allocate_host(size_t size_bytes) {
    return allocate(size_bytes);
  }
  // Copies from memory of the host, in order with the operators; `from` may change on return.
  virtual void upload(const void* from, size_t size_bytes, std::byte* to) = 0;
  // Waits for all that was queued; then the values as the host can read them: in place, or a copy
  // that is good until the next read_back().
  virtual const float* read_back(const float* from, size_t count) = 0;

  // file layout in memory of the host -> packed layout in the device's. Must not overlap. The
  // file's bytes must stay until synchronize().
  virtual void pack(const MatrixView& file, std::byte* packed) = 0;

  // Room for operators of up to this shape; call once before the first step.
  virtual void reserve(uint32_t max_rows, uint32_t max_cols) = 0;

  // The rows that the operators on keys, values and positions work on, until the next
  // begin_step(). What the spans point to must stay as long.
  virtual void begin_step(const StepRows& rows) = 0;

  // out[r] = table row ids[r], dequantized. out: (ids.size(), table.n_cols)
  virtual void embed(const MatrixView& table, std::span<const uint32_t> ids, float* out) = 0;

  // out[r][i] = x[r][i] / sqrt(mean(x[r]^2) + epsilon) * weight[i]. x, out: (rows, dim), may be
  // the same.
  virtual void rms_norm(
      const float* x,
      const float* weight,
      float epsilon,
      uint32_t rows,
      uint32_t dim,
      float* out) = 0;

  // Sets the input of the linear() calls that follow: (rows, n_cols). In fast it is rounded here,
  // once for all matrices and slices. `x` must stay unchanged until the next set_input().
  virtual void set_input(const float* x, uint32_t rows, uint32_t n_cols) = 0;
  // Applies all parts to the current input. Every weight byte is read once for all rows.
  virtual void linear(std::span<const LinearPart> parts) = 0;

  // Turns x in place: (rows of the step, n_heads, head_dim).
  virtual void rope(const RopeShape& shape, float* x) = 0;

  // Writes the rows' keys and values, both (rows, n_kv_heads, head_dim), into their pages.
  virtual void store_kv(const KvLayer& layer, const float* k, const float* v) = 0;

  // Copies whole pages, each in all layers: layer i has what `first` has, layer_bytes * i further.
  // A token's bytes stand alone: store_kv() into a copy changes no other token of it. No page is
  // read and written, or written twice.
  virtual void copy_kv_pages(
      const KvLayer& first,
      uint32_t n_layers,
      size_t layer_bytes,
      std::span<const KvPageCopy> copies) = 0;

  // Causal attention of each row over positions 0..its own, of its own sequence.
  // q, out: (rows, n_heads, head_dim); query head h reads KV head h / (n_heads / n_kv_heads).
  virtual void
  attention(const KvLayer& layer, const float* q, uint32_t n_heads, float scale, float* out) = 0;

  // out = silu(gate) * up; all (count). May be in place.
  virtual void swiglu(const float* gate, const float* up, size_t count, float* out) = 0;

  // out[i] = x[rows[i]]; x: (*, dim), out: (rows.size(), dim)
  virtual void
  gather_rows(const float* x, std::span<const uint32_t> rows, uint32_t dim, float* out) = 0;

  // Waits for all operators that were queued.
  virtual void synchronize() = 0;
  // Seconds so far in which a device with queues had run out of operators: from the end of a wait
  // for them to the next operator. 0 where operators have run when they return.
  virtual double idle_s() const { return 0; }

  // WEIGHTS THAT STREAM. These may be called by one other thread beside the one of the operators.
  // A device that shares the host's memory has done each when it returns.
  //
  // Makes memory of the host that nobody writes, such as a mapping of a file, good for
  // queue_copy(); page-locked meanwhile, and unlocked before it is unmapped. Throws Error(device)
  // with the reason where the device or the system refuses.
  virtual std::unique_ptr<HostRegistration> register_host(const std::byte* from, size_t size_bytes);
  // Copies from memory of allocate_host() or register_host(), which must stay until an event
  // recorded behind it has passed, into the device's memory.
  virtual void queue_copy(const std::byte* from, size_t size_bytes, std::byte* to);
  virtual std::unique_ptr<DeviceEvent> make_event();
  // The event passes when all that this queue holds now has been done.
  virtual void record(DeviceEvent& event, WorkQueue queue);
  // What this queue is given from now on begins after the event has passed. An event that was never
  // recorded has passed: whoever needs the order must know that record() has been called.
  virtual void hold_back(WorkQueue queue, const DeviceEvent& event);
  virtual void wait(const DeviceEvent& event);
  // Events that also note the time. Seconds from one to the other; both have passed.
  virtual std::unique_ptr<DeviceEvent> make_timed_event();
  virtual double seconds_between(const DeviceEvent& from, const DeviceEvent& to);
  // pack(), from file layout in the device's own memory; an operator like the others.
  virtual void repack(const MatrixView& file, std::byte* packed);

  // Whether pick() works here; elsewhere whoever holds the logits chooses.
  virtual bool can_pick() const { return false; }
  // Chooses a token for each row, waits, and writes picks (rows.size()). logits: (*, n_vocab); the
  // rows named are changed. The choice depends on the row's logits and its PickRow alone.
  virtual void
  pick(float* logits, uint32_t n_vocab, std::span<const PickRow> rows, std::span<Pick> picks);

  // Operators that always come together, with the bits of their parts; a device may do them in
  // one pass. What stands between the parts (`normed`, `gated`, k, `attended`) is undefined
  // afterwards.
  //
  // rms_norm() into `normed`, which becomes the input.
  virtual void norm_input(
      const float* x,
      const float* weight,
      float epsilon,
      uint32_t rows,
      uint32_t dim,
      float* normed);
  // swiglu() into `gated`, which becomes the input. `gated` may be `gate`.
  virtual void
  gate_input(const float* gate, const float* up, uint32_t rows, uint32_t dim, float* gated);
  // attention() of the step's rows into `attended`, which becomes the input.
  virtual void attention_input(
      const KvLayer& layer,
      const float* q,
      uint32_t rows,
      uint32_t n_heads,
      float scale,
      float* attended);
  // rope() of queries and keys, then store_kv().
  virtual void rope_and_store(
      const RopeShape& q_shape,
      const RopeShape& k_shape,
      const KvLayer& layer,
      float* q,
      float* k,
      const float* v);
};

struct CpuOptions {
  MathMode math = MathMode::fast;
  uint32_t n_threads = 0;  // 0: as many as the process may run on
  // For tests: "generic", "avx2", "avx512"; empty: the best this CPU has. Throws Error(device)
  // when the CPU cannot run it.
  std::string instruction_set;
};

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

struct CudaOptions {
  uint32_t index = 0;  // as the driver counts them
};

// Whether this program can use a GPU here. Cheap: nothing is opened.
struct CudaSupport {
  bool is_built = false;
  uint32_t n_gpus = 0;
  std::string why_not;  // for people, where n_gpus is 0
};
CudaSupport cuda_support();

// Arithmetic `fast` only; keys and values f16 or q8_0. Throws Error(device) with the reason.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);

// Those of an NVIDIA GPU, in every build. The scratch of its linear operator, which hangs on the
// number of its processors, is taken as an H200's, the largest.
std::unique_ptr<DeviceSizes> cuda_sizes();

}  // namespace nightsweep
