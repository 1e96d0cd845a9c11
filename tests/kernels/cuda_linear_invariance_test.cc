// The bits of the CUDA device's linear operator depend on nothing but the row and the weights.
#include "kernels/cuda/linear_kernels.h"
#include "kernels/cuda_linear_fixture.h"

namespace nightsweep::cuda {
namespace {

constexpr uint32_t kRowCounts[] = {1, 2, 3, 8, 16, 17, 63, 64, 65, 128, 256, 512};
constexpr uint32_t kMostRows = 512;

// Rows 7, 20, 33, ... of `x`, so that a row is never where it was.
std::vector<uint32_t> scattered(uint32_t count) {
  std::vector<uint32_t> rows(count);
  for (uint32_t i = 0; i < count; ++i)
    rows[i] = (7 + 13 * i) % kMostRows;
  return rows;
}

std::vector<float>
gather(const std::vector<float>& x, const std::vector<uint32_t>& rows, uint32_t n_cols) {
  std::vector<float> result;
  for (const uint32_t row : rows) {
    const auto values = rows_of(x, row, 1, n_cols);
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

TEST_F(CudaLinear, a_row_has_the_same_bits_in_any_company) {
  Random random(5);
  for (const QuantType type : all_types()) {
    const bool is_block = quant_traits(type).block_elems == 256;
    for (const uint32_t n_cols : {is_block ? 1280U : 576U, is_block ? 256U : 2144U}) {
      const uint32_t n_rows = 304;
      const Matrix matrix = random_matrix(type, n_rows, n_cols, random);
      const std::vector<float> x = random.normals(size_t{kMostRows} * n_cols);
      const std::vector<float> all = apply(matrix.view(), x);
      for (const uint32_t count : kRowCounts) {
        const std::vector<uint32_t> rows = scattered(count);
        EXPECT_TRUE(
            same_bits(gather(all, rows, n_rows), apply(matrix.view(), gather(x, rows, n_cols))))
            << quant_traits(type).name << ", " << n_cols << " columns, " << count << " rows";
      }
    }
  }
}

// Every tile of every kernel, those for other numbers of rows and other GPUs too.
TEST_F(CudaLinear, all_tiles_give_the_same_bits) {
  Random random(14);
  constexpr uint32_t kCapacity[kTileShapes] = {8, 16, 32, 512, 512, 512, 512, 512, 512};
  const uint32_t n_shapes = linear_->has_wide_tiles() ? kTileShapes : kFirstWideShape;
  std::printf(
      "%u tiles, warpgroup products %s\n", n_shapes, n_shapes == kTileShapes ? "on" : "off");
  for (const QuantType type : all_types()) {
    const uint32_t n_rows = 600;
    const uint32_t n_cols = quant_traits(type).block_elems == 256 ? 1280 : 1216;
    const Matrix matrix = random_matrix(type, n_rows, n_cols, random);
    for (const uint32_t rows : {5U, 13U, 29U, 150U}) {
      const std::vector<float> x = random.normals(size_t{rows} * n_cols);
      const std::vector<float> expected = apply(matrix.view(), x);
      for (uint32_t shape = 0; shape < n_shapes; ++shape) {
        if (rows > kCapacity[shape]) continue;
        LinearOptions options;
        options.tile = static_cast<TileShape>(shape);
        auto other = std::make_unique<LinearOperator>(options);
        other->set_workspace(workspace_->data(), nullptr);
        std::swap(linear_, other);
        EXPECT_TRUE(same_bits(expected, apply(matrix.view(), x)))
            << quant_traits(type).name << ", " << rows << " rows, tile " << shape;
        std::swap(linear_, other);
      }
    }
  }
}

// Enough outputs that a block does all splits itself at many rows, and not at few.
TEST_F(CudaLinear, bits_do_not_depend_on_how_splits_are_shared) {
  Random random(6);
  for (const QuantType type : {QuantType::q4_k, QuantType::q8_0}) {
    const uint32_t n_cols = 1024;
    const uint32_t n_rows = 80 * 256;
    const Matrix matrix = random_matrix(type, n_rows, n_cols, random);
    const std::vector<float> x = random.normals(size_t{kMostRows} * n_cols);
    const std::vector<float> all = apply(matrix.view(), x);
    for (const uint32_t count : {1U, 16U, 64U, 128U, 200U}) {
      const std::vector<uint32_t> rows = scattered(count);
      EXPECT_TRUE(
          same_bits(gather(all, rows, n_rows), apply(matrix.view(), gather(x, rows, n_cols))))
          << quant_traits(type).name << ", " << count << " rows";
    }
  }
}

TEST_F(CudaLinear, slices_and_parts_change_no_bit) {
  Random random(7);
  for (const QuantType type : all_types()) {
    const Matrix matrix = random_matrix(type, 200, 768, random);
    const Matrix other = random_matrix(QuantType::q6_k, 70, 768, random);
    for (const uint32_t rows : {1U, 12U, 30U, 64U, 129U}) {
      const std::vector<float> x = random.normals(size_t{rows} * 768);
      const std::vector<float> whole = apply(matrix.view(), x);
      std::vector<LinearPart> parts(4);
      parts[0].weight = matrix.slice(0, 16);
      parts[1].weight = matrix.slice(16, 112);
      parts[2].weight = matrix.slice(128, 72);
      parts[3].weight = other.view();
      const std::vector<float> cut = apply_parts(parts, x);
      for (uint32_t r = 0; r < rows; ++r) {
        ASSERT_TRUE(same_bits(
            rows_of(whole, r, 1, 200),
            {cut.begin() + size_t{r} * 270, cut.begin() + size_t{r} * 270 + 200}))
            << quant_traits(type).name << ", row " << r << " of " << rows;
      }
    }
  }
}

// Blocks that have several tiles to do and that share one: 1, 3 and 7 are no divisors of a tile's
// splits, so that every way of handing a tile over is met, and rings of stages are filled again.
TEST_F(CudaLinear, bits_do_not_depend_on_the_number_of_blocks) {
  Random random(15);
  for (const QuantType type : all_types()) {
    const uint32_t n_cols = quant_traits(type).block_elems == 256 ? 1280 : 1216;
    const Matrix matrix = random_matrix(type, 700, n_cols, random);
    for (const uint32_t rows : {5U, 30U, 64U, 150U}) {
      const std::vector<float> x = random.normals(size_t{rows} * n_cols);
      const std::vector<float> expected = apply(matrix.view(), x);
      for (const uint32_t blocks : {1U, 3U, 7U}) {
        LinearOptions options;
        options.blocks = blocks;
        with_operator(options, [&] {
          EXPECT_TRUE(same_bits(expected, apply(matrix.view(), x)))
              << quant_traits(type).name << ", " << rows << " rows, " << blocks << " blocks";
        });
      }
    }
  }
}

// Weights that have stood are read before the kernels in flight are over, and types of one input
// run beside each other: in a chain where each output is the next input, against the same chain
// with a wait after every kernel and against double. With few blocks the neighbour finds room at
// once, and is over long before the launch it runs beside. It holds values, counters and sums of
// neighbours; a wait that is missing does not show here (tried on an H200): the kernel before is
// over sooner than the first weights have come.
TEST_F(CudaLinear, early_starts_and_neighbours_change_no_bit) {
  Random random(16);
  LayerChain chain(*this, random, 16384);
  for (const uint32_t rows : {1U, 12U, 30U, 64U, 129U}) {
    const std::vector<float> x = random.normals(size_t{rows} * LayerChain::kCols);
    const std::vector<float> expected = chain.run(x, WeightAge::fresh, true);
    EXPECT_LT(chain.error(x, rows_of(expected, 0, rows, LayerChain::kCols)), 1e-3) << rows;
    const auto repeat = [&](const char* blocks) {
      for (int again = 0; again < 20; ++again) {
        ASSERT_TRUE(same_bits(expected, chain.run(x, WeightAge::settled, false)))
            << rows << " rows, " << blocks << " blocks, run " << again;
      }
    };
    repeat("all");
    LinearOptions options;
    options.blocks = 16;
    with_operator(options, [&] { repeat("16"); });
  }
}

// What the tests above would catch: the sum cut elsewhere from 9 rows on.
TEST_F(CudaLinear, a_control_that_splits_by_row_count_is_caught) {
  Random random(8);
  const uint32_t n_rows = 64;
  const uint32_t n_cols = 1024;
  const Matrix matrix = random_matrix(QuantType::q8_0, n_rows, n_cols, random);
  std::vector<std::byte> halves[2];
  const size_t half_bytes = quant_bytes(QuantType::q8_0, n_cols / 2);
  for (uint32_t row = 0; row < n_rows; ++row) {
    for (uint32_t i = 0; i < 2; ++i) {
      const auto from = matrix.file.begin() + static_cast<ptrdiff_t>((2 * row + i) * half_bytes);
      halves[i].insert(halves[i].end(), from, from + static_cast<ptrdiff_t>(half_bytes));
    }
  }
  const Matrix left = pack(QuantType::q8_0, n_rows, n_cols / 2, halves[0]);
  const Matrix right = pack(QuantType::q8_0, n_rows, n_cols / 2, halves[1]);
  const auto control = [&](const std::vector<float>& x) {
    if (x.size() / n_cols <= 8) return apply(matrix.view(), x);
    std::vector<float> x_halves[2];
    for (size_t at = 0; at < x.size(); at += n_cols / 2) {
      auto& half = x_halves[at / (n_cols / 2) % 2];
      half.insert(
          half.end(), x.begin() + static_cast<ptrdiff_t>(at),
          x.begin() + static_cast<ptrdiff_t>(at + n_cols / 2));
    }
    std::vector<float> sum = apply(left.view(), x_halves[0]);
    const std::vector<float> rest = apply(right.view(), x_halves[1]);
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += rest[i];
    return sum;
  };
  const std::vector<float> x = random.normals(size_t{kMostRows} * n_cols);
  const std::vector<float> all = control(x);
  const std::vector<uint32_t> rows = scattered(3);
  EXPECT_FALSE(same_bits(gather(all, rows, n_rows), control(gather(x, rows, n_cols))));
}

}  // namespace
}  // namespace nightsweep::cuda
