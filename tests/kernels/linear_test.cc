#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "kernels/oracle.h"

namespace nightsweep {
namespace {

struct Matrix {
  QuantType type;
  uint32_t n_rows;
  uint32_t n_cols;
  std::vector<std::byte> file;
  std::vector<float> values;

  MatrixView view() const { return {type, WeightLayout::file, n_rows, n_cols, file.data()}; }
};

Matrix random_matrix(QuantType type, uint32_t n_rows, uint32_t n_cols, Random& random) {
  const size_t n = size_t{n_rows} * n_cols;
  Matrix matrix{type, n_rows, n_cols, random_blocks(type, n, random), {}};
  matrix.values = dequantized(type, matrix.file, n);
  return matrix;
}

std::unique_ptr<Device> device(MathMode math, const std::string& set, uint32_t n_threads = 2) {
  auto made = make_cpu_device({math, n_threads, set});
  made->reserve(128, 8192);
  return made;
}

std::vector<float> apply(
    Device& on,
    const MatrixView& weight,
    const std::vector<float>& x,
    const float* bias = nullptr) {
  const size_t rows = x.size() / weight.n_cols;
  std::vector<float> out(rows * weight.n_rows, NAN);
  on.set_input(x.data(), static_cast<uint32_t>(rows), weight.n_cols);
  LinearPart part;
  part.weight = weight;
  part.bias = bias;
  part.out = out.data();
  part.out_stride = weight.n_rows;
  on.linear({&part, 1});
  return out;
}

std::vector<uint32_t> awkward_columns(QuantType type) {
  switch (quant_traits(type).block_elems) {
    case 1:
      return {1, 31, 33, 100, 576};
    case 32:
      return {32, 96, 576, 1536};
    default:
      return {256, 768, 1536};
  }
}

// x . w of each row and output against `found`; per_element is what the tolerance allows for the
// input's own rounding, as a share of a quantum of each block of 32.
WorstElement compare(
    const Matrix& matrix,
    const std::vector<double>& x,
    const std::vector<float>& found,
    const std::vector<double>* input_quanta) {
  WorstElement worst;
  const size_t rows = x.size() / matrix.n_cols;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < matrix.n_rows; ++o) {
      double sum = 0;
      double magnitudes = 0;
      double input_error = 0;
      for (size_t k = 0; k < matrix.n_cols; ++k) {
        const auto w = static_cast<double>(matrix.values[o * matrix.n_cols + k]);
        const double product = w * x[r * matrix.n_cols + k];
        sum += product;
        magnitudes += std::fabs(product);
        if (input_quanta != nullptr) {
          input_error += std::fabs(w) * (*input_quanta)[r * matrix.n_cols + k];
        }
      }
      // Types with a minimum cancel two large parts: their magnitudes count, not the value's.
      const double parts = magnitudes * (is_float_type(matrix.type) ? 1 : 8);
      const double tolerance = rounding_bound(parts, 40 + matrix.n_cols / 32) + input_error;
      worst.add_checked(r, o, sum, static_cast<double>(found[r * matrix.n_rows + o]), tolerance);
    }
  }
  return worst;
}

std::vector<double> widen(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

class Linear : public testing::TestWithParam<QuantType> {};

INSTANTIATE_TEST_SUITE_P(all_types, Linear, testing::ValuesIn(all_types()), [](const auto& shown) {
  return std::string(quant_traits(shown.param).name);
});

TEST_P(Linear, agrees_with_the_oracle_on_every_instruction_set) {
  const QuantType type = GetParam();
  Random random(11);
  for (const MathMode math : {MathMode::exact, MathMode::fast}) {
    const bool is_rounded = math == MathMode::fast && !is_float_type(type);
    WorstElement worst;
    for (const uint32_t n_cols : awkward_columns(type)) {
      for (const uint32_t outputs : {1U, 15U, 16U, 17U, 100U}) {
        const Matrix matrix = random_matrix(type, outputs, n_cols, random);
        for (const uint32_t rows : {1U, 2U, 3U, 7U, 8U, 9U, 16U, 17U, 65U}) {
          if (rows > 17 && outputs > 17) continue;  // slow on the oracle, nothing new
          const std::vector<float> x = random.normals(size_t{rows} * n_cols);
          std::vector<float> first;
          for (const std::string& set : runnable_sets()) {
            const std::vector<float> found = apply(*device(math, set), matrix.view(), x);
            if (first.empty()) {
              first = found;
              const auto seen = is_rounded ? rounded_input(x) : widen(x);
              const WorstElement here = compare(matrix, seen, found, nullptr);
              ASSERT_LE(here.ratio(), 1.0)
                  << outputs << " x " << n_cols << ", " << rows << " rows: " << here.text();
              if (here.ratio() > worst.ratio()) worst = here;
            } else {
              ASSERT_TRUE(same_bits(first, found))
                  << set << ": " << outputs << " x " << n_cols << ", " << rows << " rows";
            }
          }
        }
      }
    }
    std::cout << quant_traits(type).name << (math == MathMode::fast ? " fast" : " exact")
              << ", worst " << worst.text() << '\n';
  }
}

void expect_within_half_a_quantum(QuantType type) {
  Random random(12);
  const Matrix matrix = random_matrix(type, 48, 1536, random);
  const std::vector<float> x = random.normals(size_t{3} * 1536);
  std::vector<double> quanta(x.size());
  for (size_t first = 0; first < x.size(); first += 32) {
    float largest = 0.0F;
    for (size_t i = first; i < first + 32; ++i)
      largest = std::max(largest, std::fabs(x[i]));
    for (size_t i = first; i < first + 32; ++i) {
      quanta[i] = 0.5001 * static_cast<double>(largest) / 127;
    }
  }
  const std::vector<float> found = apply(*device(MathMode::fast, ""), matrix.view(), x);
  const WorstElement worst = compare(matrix, widen(x), found, &quanta);
  // Errors of both signs cancel, so a sum that comes near the bound has a fault in it.
  EXPECT_LE(worst.ratio(), 0.25) << quant_traits(type).name << ": " << worst.text();
}

TEST(LinearFast, stays_within_half_a_quantum_of_each_input) {
  for (const QuantType type : all_types()) {
    // Float weights take the input as it is.
    if (!is_float_type(type)) expect_within_half_a_quantum(type);
  }
}

// More input than the cache holds: the device takes another way through the panels.
TEST(LinearFast, a_large_input_gives_the_bits_of_its_rows_alone) {
  Random random(19);
  const Matrix matrix = random_matrix(QuantType::q4_k, 100, 8192, random);
  const auto on = device(MathMode::fast, "");
  const auto packed = on->allocate(on->packed_bytes(QuantType::q4_k, 100, 8192));
  on->pack(matrix.view(), packed->data());
  const MatrixView view{QuantType::q4_k, WeightLayout::packed, 100, 8192, packed->data()};
  const std::vector<float> x = random.normals(size_t{90} * 8192);
  const std::vector<float> all = apply(*on, view, x);
  for (const size_t row : {0U, 15U, 16U, 63U, 89U}) {
    const std::vector<float> alone = apply(*on, view, rows_of(x, row, 1, 8192));
    EXPECT_TRUE(same_bits(alone, rows_of(all, row, 1, 100))) << row;
  }
}

// Calls check(name, bits) with the output of the last row in many surroundings; all must be equal.
template <typename Apply>
void expect_invariant(const Matrix& matrix, Random& random, bool must_hold, Apply&& apply_rows) {
  const std::vector<float> row = random.normals(matrix.n_cols);
  const std::vector<float> alone = apply_rows(row);
  bool held = true;
  for (const uint32_t rows : {2U, 3U, 17U, 64U}) {
    for (const uint32_t place : {0U, rows / 2, rows - 1}) {
      std::vector<float> x = random.normals(size_t{rows} * matrix.n_cols);
      std::copy(row.begin(), row.end(), x.begin() + static_cast<ptrdiff_t>(place) * matrix.n_cols);
      const std::vector<float> all = apply_rows(x);
      held = held && same_bits(alone, rows_of(all, place, 1, matrix.n_rows));
    }
  }
  EXPECT_EQ(held, must_hold);
}

TEST_P(Linear, a_row_has_the_same_bits_in_any_company) {
  Random random(13);
  const uint32_t n_cols = quant_traits(GetParam()).block_elems == 256 ? 768 : 576;
  const Matrix matrix = random_matrix(GetParam(), 100, n_cols, random);
  for (const MathMode math : {MathMode::exact, MathMode::fast}) {
    for (const std::string& set : runnable_sets()) {
      const auto on = device(math, set);
      expect_invariant(matrix, random, true, [&](const std::vector<float>& x) {
        return apply(*on, matrix.view(), x);
      });
    }
  }
}

TEST(LinearControl, a_sum_split_by_batch_size_is_caught) {
  Random random(14);
  const Matrix matrix = random_matrix(QuantType::f32, 100, 576, random);
  expect_invariant(matrix, random, false, [&](const std::vector<float>& x) {
    const size_t rows = x.size() / matrix.n_cols;
    const size_t pieces = rows == 1 ? 4 : 1;
    const size_t length = matrix.n_cols / pieces;
    std::vector<float> out(rows * matrix.n_rows);
    for (size_t i = 0; i < out.size(); ++i) {
      const float* const xs = x.data() + i / matrix.n_rows * matrix.n_cols;
      const float* const ws = matrix.values.data() + i % matrix.n_rows * matrix.n_cols;
      for (size_t piece = 0; piece < pieces; ++piece) {
        float sum = 0.0F;
        for (size_t k = piece * length; k < (piece + 1) * length; ++k)
          sum += xs[k] * ws[k];
        out[i] += sum;
      }
    }
    return out;
  });
}

TEST_P(Linear, layout_slices_and_threads_change_no_bit) {
  const QuantType type = GetParam();
  Random random(15);
  const uint32_t n_cols = quant_traits(type).block_elems == 256 ? 768 : 576;
  const Matrix matrix = random_matrix(type, 100, n_cols, random);
  const std::vector<float> x = random.normals(size_t{19} * n_cols);
  for (const MathMode math : {MathMode::exact, MathMode::fast}) {
    const std::vector<float> expected = apply(*device(math, ""), matrix.view(), x);
    for (const uint32_t n_threads : {1U, 2U, 3U}) {
      const auto on = device(math, "", n_threads);
      EXPECT_TRUE(same_bits(expected, apply(*on, matrix.view(), x))) << n_threads;

      const auto packed = on->allocate(on->packed_bytes(type, matrix.n_rows, n_cols));
      on->pack(matrix.view(), packed->data());
      MatrixView view = matrix.view();
      view.layout = WeightLayout::packed;
      view.data = packed->data();
      EXPECT_TRUE(same_bits(expected, apply(*on, view, x))) << n_threads;

      // Three slices, one of them packed alone, in one call, in another order.
      const size_t row_bytes = quant_bytes(type, n_cols);
      std::vector<float> out(19 * 100, NAN);
      std::vector<LinearPart> parts;
      const auto middle = on->allocate(on->packed_bytes(type, 48, n_cols));
      on->pack(
          {type, WeightLayout::file, 48, n_cols, matrix.file.data() + 16 * row_bytes},
          middle->data());
      const auto add = [&](uint32_t first, const MatrixView& weight) {
        LinearPart part;
        part.weight = weight;
        part.out = out.data();
        part.out_stride = 100;
        part.out_column = first;
        parts.push_back(part);
      };
      add(64, {type, WeightLayout::file, 36, n_cols, matrix.file.data() + 64 * row_bytes});
      add(16, {type, WeightLayout::packed, 48, n_cols, middle->data()});
      add(0, {type, WeightLayout::file, 16, n_cols, matrix.file.data()});
      on->set_input(x.data(), 19, n_cols);
      on->linear(parts);
      EXPECT_TRUE(same_bits(expected, out)) << n_threads;
    }
  }
}

TEST_P(Linear, bias_comes_before_what_stood_in_the_output) {
  const QuantType type = GetParam();
  Random random(16);
  const uint32_t n_cols = quant_traits(type).block_elems == 256 ? 256 : 64;
  const Matrix matrix = random_matrix(type, 21, n_cols, random);
  const std::vector<float> x = random.normals(size_t{5} * n_cols);
  const std::vector<float> bias = random.normals(21);
  const std::vector<float> before = random.normals(size_t{5} * 21);
  for (const std::string& set : runnable_sets()) {
    const auto on = device(MathMode::fast, set);
    const std::vector<float> dots = apply(*on, matrix.view(), x);
    std::vector<float> expected(before.size());
    for (size_t i = 0; i < before.size(); ++i)
      expected[i] = before[i] + (dots[i] + bias[i % 21]);
    std::vector<float> out = before;
    LinearPart part;
    part.weight = matrix.view();
    part.bias = bias.data();
    part.out = out.data();
    part.out_stride = 21;
    part.accumulate = true;
    on->linear({&part, 1});
    EXPECT_TRUE(same_bits(expected, out)) << set;
  }
}

TEST_P(Linear, embedding_decodes_rows_of_both_layouts) {
  const QuantType type = GetParam();
  Random random(17);
  const Matrix matrix = random_matrix(type, 37, 512, random);
  const auto on = device(MathMode::fast, "");
  const auto packed = on->allocate(on->packed_bytes(type, 37, 512));
  on->pack(matrix.view(), packed->data());
  const std::vector<uint32_t> ids = {36, 0, 17, 17, 15, 16, 1};
  for (const bool is_packed : {false, true}) {
    MatrixView view = matrix.view();
    if (is_packed) view = {type, WeightLayout::packed, 37, 512, packed->data()};
    std::vector<float> out(ids.size() * 512);
    on->embed(view, ids, out.data());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_TRUE(same_bits(rows_of(matrix.values, ids[i], 1, 512), rows_of(out, i, 1, 512)));
    }
  }
}

TEST(LinearInput, zeros_extremes_and_nan_do_not_go_astray) {
  Random random(18);
  const Matrix matrix = random_matrix(QuantType::q8_0, 16, 64, random);
  for (const std::string& set : runnable_sets()) {
    const auto on = device(MathMode::fast, set);
    const std::vector<float> zeros(64, 0.0F);
    for (const float value : apply(*on, matrix.view(), zeros))
      EXPECT_EQ(value, 0.0F);
    std::vector<float> tiny(64, 1e-41F);
    for (const float value : apply(*on, matrix.view(), tiny))
      EXPECT_LT(std::fabs(value), 1e-36F);
    std::vector<float> huge(64, 1e37F);
    for (const float value : apply(*on, matrix.view(), huge))
      EXPECT_FALSE(std::isnan(value));
    // What is not a number shows in the result; it does not turn into an answer.
    for (const float wrong : {NAN, HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> x(64, 1.0F);
      x[40] = wrong;
      for (const float value : apply(*on, matrix.view(), x))
        EXPECT_FALSE(std::isfinite(value));
    }
  }
}

}  // namespace
}  // namespace nightsweep
