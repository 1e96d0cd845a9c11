// Every kernel of the CUDA device at least once, at sizes small enough for the tools of
// compute-sanitizer, which slow a kernel down a hundred times: all types and tiles of the linear
// operator, its packing, embedding, exact path and inputs, all head sizes and modes of attention,
// rows and choices. Sizes are odd where a bound could be missed, and stages of shared memory are
// used more than once. The values are other tests' matter; here tiles are compared with each other.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda_linear_fixture.h"
#include "support/test_device.h"

namespace nightsweep::cuda {
namespace {

using CudaEveryKernel = CudaLinear;

TEST_F(CudaEveryKernel, of_the_linear_operator) {
  Random random(51);
  constexpr uint32_t kCapacity[kTileShapes] = {8, 16, 32, 512, 512, 512, 512, 512, 512};
  constexpr uint32_t kRows[] = {5, 13, 29, 70, 130};
  const uint32_t n_shapes = linear_->has_wide_tiles() ? kTileShapes : kFirstWideShape;
  std::vector<std::unique_ptr<LinearOperator>> operators;
  for (uint32_t shape = 0; shape < n_shapes; ++shape) {
    LinearOptions options;
    options.tile = static_cast<TileShape>(shape);
    // Few blocks: each fills its stages again and again, and tiles are cut between them.
    options.blocks = 3;
    operators.push_back(std::make_unique<LinearOperator>(options));
    operators.back()->set_workspace(workspace_->data(), nullptr);
  }
  uint32_t n_runs = 0;
  for (const QuantType type : all_types()) {
    // 20 chunks: more than the stages of any tile; outputs of more than one tile of 256.
    const uint32_t n_cols = quant_traits(type).block_elems == 256 ? 1280 : 1248;
    const uint32_t n_outputs = 270;
    const Matrix matrix = random_matrix(type, n_outputs, n_cols, random);
    const std::vector<float> x = random.normals(size_t{130} * n_cols);
    std::vector<float> first;
    for (const uint32_t rows : kRows) {
      const std::vector<float> input(x.begin(), x.begin() + size_t{rows} * n_cols);
      for (uint32_t shape = 0; shape < n_shapes; ++shape) {
        // A tile at the number of rows that it is for, and at one more tile of them.
        if (rows > kCapacity[shape] || (rows < 29 && shape > 2)) continue;
        std::swap(linear_, operators[shape]);
        const std::vector<float> found = apply(matrix.view(), input);
        std::swap(linear_, operators[shape]);
        ++n_runs;
        if (first.empty()) first = found;
        EXPECT_TRUE(same_bits(rows_of(first, 0, 5, n_outputs), rows_of(found, 0, 5, n_outputs)))
            << quant_traits(type).name << ", " << rows << " rows, tile " << shape;
      }
    }
    const std::vector<uint32_t> ids = {0, 269, 16};
    const Buffer on_device(ids);
    const Buffer rows_out = poisoned(size_t{3} * n_cols);
    const Buffer input(rows_of(x, 0, 3, n_cols));
    const Buffer out = poisoned(size_t{3} * n_outputs);
    for (const MatrixView& view : {matrix.view(), matrix.file_view()}) {
      linear_->embed(
          view, reinterpret_cast<const uint32_t*>(on_device.data()), 3, rows_out.floats(), nullptr);
      EXPECT_TRUE(same_bits(
          rows_of(matrix.values, 269, 1, n_cols), rows_of(rows_out.read<float>(), 1, 1, n_cols)));
      const LinearPart part{view, nullptr, out.floats(), n_outputs, 0, false};
      linear_->apply_exact(input.floats(), 3, n_cols, {&part, 1}, nullptr);
    }
  }
  std::printf("%u runs of %u tiles\n", n_runs, n_shapes);
}

// Kernels that start early and beside each other, in a stream without waits.
TEST_F(CudaEveryKernel, of_the_linear_operator_early) {
  Random random(55);
  LayerChain chain(*this, random, 1024);
  for (const uint32_t rows : {1U, 12U, 30U, 64U, 129U}) {
    const std::vector<float> x = random.normals(size_t{rows} * LayerChain::kCols);
    EXPECT_TRUE(
        same_bits(chain.run(x, WeightAge::fresh, true), chain.run(x, WeightAge::settled, false)))
        << rows;
  }
}

// Each number of threads, items a thread and blocks a row of the input's kernel.
TEST_F(CudaEveryKernel, of_the_input) {
  Random random(52);
  for (const uint32_t n_cols : {33U, 2049U, 4097U, 8193U, 16385U, 32769U}) {
    const uint32_t rows = 3;
    const Buffer x(random.normals(size_t{rows} * n_cols));
    const Buffer other(random.normals(size_t{rows} * n_cols));
    const Buffer memory = room_for_input(rows, n_cols);
    const Buffer values = poisoned(size_t{rows} * n_cols);
    linear_->prepare(x.floats(), rows, n_cols, memory.data(), nullptr);
    linear_->prepare_rms_norm(
        x.floats(), other.floats(), 1e-5F, rows, n_cols, values.floats(), memory.data(), nullptr);
    linear_->prepare_gated(
        x.floats(), other.floats(), rows, n_cols, values.floats(), memory.data(), nullptr);
    linear_->rms_norm(x.floats(), other.floats(), 1e-5F, rows, n_cols, values.floats(), nullptr);
    for (const float value : values.read<float>())
      ASSERT_TRUE(std::isfinite(value));
  }
}

// Keys and values of one sequence on the device, and its rows over them.
class Attending {
 public:
  Attending(Device& device, const KvShape& shape, uint32_t n_heads)
      : device_(device),
        n_heads_(n_heads),
        matrix_(random_halves(size_t{kOutputs} * n_heads * shape.head_dim)),
        packed_(device.packed_bytes(QuantType::f16, kOutputs, n_heads * shape.head_dim)),
        // NaN: what was never written is read beside what was, and may not be used.
        pages_(poisoned(device.kv_page_bytes(shape) * kPages / sizeof(float))),
        layer_{shape, pages_.data(), device.kv_page_bytes(shape)},
        table_(kPages),
        frequencies_(shape.head_dim / 2, 0.01) {
    std::iota(table_.rbegin(), table_.rend(), 0);
    const MatrixView file{
        QuantType::f16, WeightLayout::file, kOutputs, n_heads * shape.head_dim, matrix_.data()};
    device.pack(file, packed_.data());
  }

  // Rows [first, first + n).
  void store(uint32_t first, uint32_t n) {
    const KvShape& shape = layer_.shape;
    begin(first, n);
    const Buffer k(random_.normals(size_t{n} * shape.n_kv_heads * shape.head_dim));
    const Buffer v(random_.normals(size_t{n} * shape.n_kv_heads * shape.head_dim));
    device_.store_kv(layer_, k.floats(), v.floats());
    device_.synchronize();
  }
  // The page of the last positions gets the content of the first one's.
  void copy_page() {
    const KvPageCopy copy{.from = table_.front(), .to = table_.back()};
    device_.copy_kv_pages(layer_, 1, 0, {&copy, 1});
    device_.synchronize();
  }
  std::vector<float> run(uint32_t first, uint32_t n) {
    const KvShape& shape = layer_.shape;
    const size_t kv = size_t{n} * shape.n_kv_heads * shape.head_dim;
    const Buffer k(random_.normals(kv));
    const Buffer v(random_.normals(kv));
    const Buffer q(random_.normals(size_t{n} * n_heads_ * shape.head_dim));
    const Buffer out = poisoned(size_t{n} * n_heads_ * shape.head_dim);
    RopeShape rope{
        .n_heads = n_heads_,
        .head_dim = shape.head_dim,
        .n_rot = shape.head_dim,
        .half_split = first % 2 == 1,
        .frequencies = frequencies_};
    begin(first, n);
    device_.rope(rope, q.floats());
    RopeShape k_rope = rope;
    k_rope.n_heads = shape.n_kv_heads;
    device_.rope_and_store(rope, k_rope, layer_, q.floats(), k.floats(), v.floats());
    device_.attention(layer_, q.floats(), n_heads_, 0.125F, out.floats());
    device_.set_input(out.floats(), n, n_heads_ * shape.head_dim);
    const std::vector<float> apart = multiply(n);
    device_.attention_input(layer_, q.floats(), n, n_heads_, 0.125F, nullptr);
    EXPECT_TRUE(same_bits(apart, multiply(n))) << n << " rows, heads of " << shape.head_dim;
    return out.read<float>();
  }

 private:
  static constexpr uint32_t kPages = 8;
  static constexpr uint32_t kOutputs = 32;

  static std::vector<std::byte> random_halves(size_t n) {
    Random random(56);
    return random_blocks(QuantType::f16, n, random);
  }
  // The input of the device times the matrix.
  std::vector<float> multiply(uint32_t rows) {
    const Buffer out = poisoned(size_t{rows} * kOutputs);
    LinearPart part;
    part.weight = {
        QuantType::f16, WeightLayout::packed, kOutputs, n_heads_ * layer_.shape.head_dim,
        packed_.data()};
    part.out = out.floats();
    part.out_stride = kOutputs;
    device_.linear({&part, 1});
    device_.synchronize();
    return out.read<float>();
  }
  void begin(uint32_t first, uint32_t n) {
    positions_.resize(n);
    std::iota(positions_.begin(), positions_.end(), first);
    sequences_.assign(n, 0);
    spans_ = {std::span<const uint32_t>(table_)};
    device_.begin_step({positions_, sequences_, spans_});
  }

  Device& device_;
  uint32_t n_heads_;
  std::vector<std::byte> matrix_;  // pack() may read it later
  Buffer packed_;
  Buffer pages_;
  KvLayer layer_;
  std::vector<uint32_t> table_;
  std::vector<double> frequencies_;
  Random random_{53};
  // Of the step, which the device may look at until the next one.
  std::vector<uint32_t> positions_;
  std::vector<uint32_t> sequences_;
  std::vector<std::span<const uint32_t>> spans_;
};

bool all_finite(const std::vector<float>& values) {
  return std::all_of(
      values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

TEST_F(CudaEveryKernel, of_attention) {
  const auto device = make_cuda_device({});
  device->reserve(32, 160 * 256);
  for (const KvType type : {KvType::f16, KvType::q8_0}) {
    for (const uint32_t head_dim : {20U, 64U, 80U, 96U, 128U, 256U}) {
      Attending few(*device, {type, 2, head_dim}, 4);
      // A chunk and a decode row within a split, then over the end of one: merged afterwards.
      EXPECT_TRUE(all_finite(few.run(0, 11)));
      EXPECT_TRUE(all_finite(few.run(11, 1)));
      few.store(12, 238);
      EXPECT_TRUE(all_finite(few.run(250, 11)));
      EXPECT_TRUE(all_finite(few.run(261, 1)));
      // Many rows.
      EXPECT_TRUE(all_finite(few.run(262, 21)));
      few.copy_page();
      // KV heads enough for every processor: merged in registers.
      Attending many(*device, {type, 160, head_dim}, head_dim > 128 ? 160 : 320);
      many.store(0, 250);
      EXPECT_TRUE(all_finite(many.run(250, 22)));
    }
  }
}

TEST_F(CudaEveryKernel, of_rows_and_of_the_choice) {
  const auto device = make_cuda_device({});
  device->reserve(64, 1024);
  Random random(54);
  const Buffer gate(random.normals(3 * 333));
  const Buffer up(random.normals(3 * 333));
  const Buffer out = poisoned(3 * 333);
  device->swiglu(gate.floats(), up.floats(), 3 * 333, out.floats());
  const std::vector<uint32_t> wanted = {2, 0};
  device->gather_rows(gate.floats(), wanted, 333, out.floats());
  const uint32_t n_vocab = 5003;
  const Buffer logits(random.normals(size_t{6} * n_vocab));
  const std::vector<LogitEdit> edits = {
      {.token = 7, .is_banned = true}, {.token = 4000, .is_repeated = true, .bias = 3}};
  const std::vector<PickRow> rows = {
      {.row = 0},
      {.row = 1, .edits = edits},
      {.row = 2, .inverse_temperature = 1, .uniform = 0.7},
      {.row = 3, .inverse_temperature = 1, .top_k = 40, .uniform = 0.3},
      {.row = 4, .inverse_temperature = 0.01F, .top_p = 0.9, .uniform = 0.9, .edits = edits},
      {.row = 5, .inverse_temperature = 1, .min_p = 0.1F, .top_p = 0.5, .uniform = 0.1}};
  std::vector<Pick> picks(rows.size());
  device->pick(logits.floats(), n_vocab, rows, picks);
  for (const Pick& pick : picks) {
    EXPECT_EQ(pick.fault, PickFault::none);
    EXPECT_LT(pick.token, n_vocab);
  }
}

}  // namespace
}  // namespace nightsweep::cuda
