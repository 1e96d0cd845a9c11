// Kernels start while the one before them runs, and wait before they read what it writes. Here that
// one is late: it lets them start, and writes when the host says so, long after. What comes out
// must be the same as with all in its place from the begin. A kernel that does not wait reads NaN.
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/sizes.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda_linear_fixture.h"
#include "kernels/late_copy.h"

namespace nightsweep::cuda {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

Bytes random_halves(size_t n, Random& random) {
  return random_blocks(QuantType::f16, n, random);
}

class CudaEarlyStart : public CudaLinear {
 protected:
  void SetUp() override {
    CudaLinear::SetUp();
    if (IsSkipped()) return;
    stream_ = std::make_unique<Stream>();
    host_ = allocate_page_locked(sizeof(uint32_t));
    linear_->set_workspace(workspace_->data(), stream_->get());
  }
  cudaStream_t stream() const { return stream_->get(); }
  void wait() const { EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess); }

  // What work(memory, out) leaves in `out`, or, where that has no bytes, in `memory`, which holds
  // `values` before, or gets them late.
  template <typename Work>
  Bytes result(const Bytes& values, size_t out_bytes, bool is_late, const Work& work) {
    const Buffer source(values);
    const Buffer memory(Bytes(values.size(), std::byte{0xFF}));
    const Buffer out(Bytes(out_bytes, std::byte{0xFF}));
    volatile uint32_t* const may_copy = reinterpret_cast<uint32_t*>(host_->data());
    *may_copy = is_late ? 0 : 1;
    launch_late_copy(source.data(), memory.data(), values.size(), may_copy, stream());
    if (!is_late) wait();
    work(memory.data(), out.data());
    if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    *may_copy = 1;
    wait();
    return out_bytes > 0 ? out.read<std::byte>() : memory.read<std::byte>();
  }
  template <typename Work>
  void
  expect_wait(const std::string& what, const Bytes& values, size_t out_bytes, const Work& work) {
    // First in its place: kernels are loaded, and tables copied, where nothing is late.
    const Bytes expected = result(values, out_bytes, false, work);
    EXPECT_TRUE(expected == result(values, out_bytes, true, work)) << what;
  }

 private:
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceMemory> host_;
};

float* floats(std::byte* at) {
  return reinterpret_cast<float*>(at);
}

TEST_F(CudaEarlyStart, a_kernel_that_does_not_wait_is_seen) {
  Random random(61);
  const Bytes values = bytes_of(random.normals(1000));
  const auto copy = [&](std::byte* memory, std::byte* out) {
    launch_hasty_copy(memory, out, values.size(), stream());
  };
  EXPECT_TRUE(result(values, values.size(), false, copy) == values);
  EXPECT_EQ(result(values, values.size(), true, copy) == values, !can_start_early());
}

TEST_F(CudaEarlyStart, inputs_wait) {
  Random random(62);
  // A block a row, and several that share one.
  for (const uint32_t n_cols : {576U, 14336U}) {
    const uint32_t rows = 3;
    const Bytes values = bytes_of(random.normals(size_t{2} * rows * n_cols));
    const Buffer weight(random.normals(n_cols));
    const size_t out_bytes = LinearOperator::input_bytes(rows, n_cols);
    const size_t count = size_t{rows} * n_cols;
    expect_wait("plain", values, out_bytes, [&](std::byte* x, std::byte* out) {
      linear_->prepare(floats(x), rows, n_cols, out, stream());
    });
    expect_wait("norm", values, out_bytes, [&](std::byte* x, std::byte* out) {
      linear_->prepare_rms_norm(
          floats(x), weight.floats(), 1e-5F, rows, n_cols, nullptr, out, stream());
    });
    expect_wait("gated", values, out_bytes, [&](std::byte* x, std::byte* out) {
      linear_->prepare_gated(floats(x), floats(x) + count, rows, n_cols, nullptr, out, stream());
    });
    expect_wait("norm alone", values, count * sizeof(float), [&](std::byte* x, std::byte* out) {
      linear_->rms_norm(floats(x), weight.floats(), 1e-5F, rows, n_cols, floats(out), stream());
    });
    expect_wait("swiglu", values, count * sizeof(float), [&](std::byte* x, std::byte* out) {
      swiglu(floats(x), floats(x) + count, count, floats(out), stream());
    });
    const std::vector<uint32_t> wanted = {5, 0};
    expect_wait("gather", values, 2 * n_cols * sizeof(float), [&](std::byte* x, std::byte* out) {
      gather_rows(floats(x), wanted, n_cols, floats(out), stream());
    });
  }
}

// Every tile: weights are read early, the input and what is added to are not.
TEST_F(CudaEarlyStart, linear_waits) {
  Random random(63);
  constexpr uint32_t kRows[kTileShapes] = {8, 16, 32, 64, 128, 32, 64, 128, 64};
  const uint32_t n_cols = 1280;
  const uint32_t n_outputs = 270;
  const uint32_t n_shapes = linear_->has_wide_tiles() ? kTileShapes : kFirstWideShape;
  for (const QuantType type : {QuantType::q4_k, QuantType::q8_0}) {
    const Matrix matrix = random_matrix(type, n_outputs, n_cols, random);
    for (uint32_t shape = 0; shape < n_shapes; ++shape) {
      LinearOptions options;
      options.tile = static_cast<TileShape>(shape);
      LinearOperator tiled(options);
      const Buffer workspace(tiled.workspace_bytes());
      tiled.set_workspace(workspace.data(), stream());
      // The prepared input, and after it the output, to which the product is added.
      const uint32_t rows = kRows[shape];
      const Buffer x(random.normals(size_t{rows} * n_cols));
      const Buffer prepared = room_for_input(rows, n_cols);
      tiled.prepare(x.floats(), rows, n_cols, prepared.data(), stream());
      wait();
      Bytes values = prepared.read<std::byte>();
      const size_t input_bytes = values.size();
      const Bytes before = bytes_of(random.normals(size_t{rows} * n_outputs));
      values.insert(values.end(), before.begin(), before.end());
      expect_wait("tile " + std::to_string(shape), values, 0, [&](std::byte* memory, std::byte*) {
        const LinearPart part{matrix.view(), nullptr, floats(memory + input_bytes),
                              n_outputs,     0,       true};
        tiled.apply(tiled.input_at(memory, rows, n_cols), {&part, 1}, stream(), WeightAge::settled);
      });
    }
  }
}

TEST_F(CudaEarlyStart, rope_and_store_wait) {
  Random random(64);
  const uint32_t rows = 3;
  const KvShape shape{KvType::f16, 2, 20};
  const std::vector<double> frequencies = {1.0, 0.1, 0.01, 0.001};
  const RopeShape q_shape{.n_heads = 4, .head_dim = 20, .n_rot = 8, .frequencies = frequencies};
  RopeShape k_shape = q_shape;
  k_shape.n_heads = 2;
  const Buffer positions(std::vector<uint32_t>{62, 63, 64});
  const Buffer pages(std::vector<uint32_t>{1, 1, 0});
  Rope rope(stream());
  rope.reserve(rows);
  rope.begin_step(
      {rows, reinterpret_cast<const uint32_t*>(positions.data()),
       reinterpret_cast<const uint32_t*>(pages.data())});
  const size_t n_q = size_t{rows} * 80;
  const size_t n_kv = size_t{rows} * 40;
  const size_t page_bytes = cuda_kv_page_bytes(shape);
  const Bytes values = bytes_of(random.normals(n_q + 2 * n_kv));
  // The first call makes the table of cosines, by a kernel before it; the others find it.
  expect_wait("rope", values, 0, [&](std::byte* q, std::byte*) { rope.apply(q_shape, floats(q)); });
  expect_wait("rope and store", values, 2 * page_bytes, [&](std::byte* q, std::byte* out) {
    float* const k = floats(q) + n_q;
    rope.apply_and_store(q_shape, k_shape, {shape, out, page_bytes}, floats(q), k, k + n_kv);
  });
  expect_wait("store", values, 2 * page_bytes, [&](std::byte* q, std::byte* out) {
    float* const k = floats(q) + n_q;
    rope.store({shape, out, page_bytes}, k, k + n_kv);
  });
}

TEST_F(CudaEarlyStart, attention_waits) {
  Random random(65);
  const KvShape shape{KvType::f16, 2, 32};
  const uint32_t n_heads = 4;
  const size_t page_bytes = cuda_kv_page_bytes(shape);
  const std::vector<uint32_t> table = {2, 0, 4, 1, 3};
  const std::span<const uint32_t> tables(table);
  const GpuInfo gpu = open_gpu(0);
  // A decode row within a split, one over two of them, and a chunk: each of another kernel.
  for (const auto& [first, rows] : {std::pair{70U, 1U}, std::pair{300U, 1U}, std::pair{30U, 40U}}) {
    Staging staging(stream());
    Attention attention(gpu, staging, stream());
    attention.reserve();
    std::vector<uint32_t> positions(rows);
    std::iota(positions.begin(), positions.end(), first);
    const std::vector<uint32_t> sequences(rows, 0);
    attention.begin_step({positions, sequences, {&tables, 1}});
    const uint32_t n_cols = n_heads * shape.head_dim;
    Bytes values = random_halves(table.size() * page_bytes / 2, random);
    const size_t pages_bytes = values.size();
    const Bytes q = bytes_of(random.normals(size_t{rows} * n_cols));
    values.insert(values.end(), q.begin(), q.end());
    const std::string what =
        "attention of " + std::to_string(rows) + " from " + std::to_string(first);
    expect_wait(
        what, values, size_t{rows} * n_cols * sizeof(float),
        [&](std::byte* memory, std::byte* out) {
          attention.run(
              {shape, memory, page_bytes}, floats(memory + pages_bytes), n_heads, 0.125F,
              floats(out));
        });
  }
}

TEST_F(CudaEarlyStart, the_merge_of_attention_waits) {
  Random random(66);
  constexpr uint32_t kDim = 32;
  constexpr uint32_t kHeads = 2;
  constexpr uint32_t kSplitsOfRow = 3;
  const MergeRow row{0, kSplitsOfRow};
  const Buffer rows(std::vector<MergeRow>{row});
  const Buffer workspace_rows(std::vector<uint32_t>{0});
  const size_t n_entries = size_t{kHeads} * kSplitsOfRow;
  std::vector<float> values = random.normals(n_entries * (kDim + 2));
  for (float& value : values)
    value = std::fabs(value);  // sums among them
  expect_wait(
      "merge", bytes_of(values), kHeads * kDim * sizeof(float),
      [&](std::byte* memory, std::byte* out) {
        AttentionArgs args{};
        args.workspace_rows = reinterpret_cast<const uint32_t*>(workspace_rows.data());
        args.out = floats(out);
        args.split_values = floats(memory);
        args.split_sums = reinterpret_cast<float2*>(floats(memory) + n_entries * kDim);
        args.head_dim = kDim;
        args.group = 1;
        args.n_heads = kHeads;
        launch_merge(kDim, reinterpret_cast<const MergeRow*>(rows.data()), 1, args, stream());
      });
}

TEST_F(CudaEarlyStart, the_choice_waits) {
  Random random(67);
  const uint32_t n_vocab = 5003;
  PickJob job{};
  job.repetition_penalty = 1;
  job.top_p = 1;
  const Buffer jobs(std::vector<PickJob>{job});
  expect_wait(
      "pick", bytes_of(random.normals(n_vocab)), sizeof(Pick),
      [&](std::byte* logits, std::byte* out) {
        launch_pick(
            floats(logits), n_vocab, reinterpret_cast<const PickJob*>(jobs.data()), 1, nullptr,
            reinterpret_cast<Pick*>(out), stream());
      });
}

}  // namespace
}  // namespace nightsweep::cuda
