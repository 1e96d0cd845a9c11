// The linear operator of the CUDA device, by itself, against references in double.
#include <cmath>
#include <cstdio>

#include "kernels/cuda/linear_layout.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda_linear_fixture.h"

namespace nightsweep::cuda {
namespace {

std::vector<uint32_t> awkward_columns(QuantType type) {
  switch (quant_traits(type).block_elems) {
    case 1:
      return {1, 33, 100, 576};
    case 32:
      return {32, 96, 576, 1536};
    default:
      return {256, 768, 1536};
  }
}

std::vector<double> reference(const Matrix& matrix, const std::vector<float>& x) {
  const size_t rows = x.size() / matrix.n_cols;
  std::vector<double> out(rows * matrix.n_rows);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < matrix.n_rows; ++o) {
      double sum = 0;
      for (size_t k = 0; k < matrix.n_cols; ++k) {
        sum += static_cast<double>(matrix.values[o * matrix.n_cols + k]) *
               static_cast<double>(x[r * matrix.n_cols + k]);
      }
      out[r * matrix.n_rows + o] = sum;
    }
  }
  return out;
}

// Size of the roundings to f16, as linear.h states them: of x, of a weight, and of what a weight is
// the difference of. The last is not visible in the values; the spread of a block bounds it.
std::vector<double> tolerances(const Matrix& matrix, const std::vector<float>& x) {
  constexpr double kUnit = 0x1p-11;
  const size_t n_cols = matrix.n_cols;
  const size_t rows = x.size() / n_cols;
  const bool is_float = is_float_type(matrix.type);
  std::vector<double> weight_error(matrix.values.size());
  for (size_t o = 0; o < matrix.n_rows; ++o) {
    const float* const row = matrix.values.data() + o * n_cols;
    for (size_t first = 0; first < n_cols; first += 32) {
      const size_t end = std::min(n_cols, first + 32);
      const auto [low, high] = std::minmax_element(row + first, row + end);
      const double size = std::max(std::fabs(*low), std::fabs(*high)) + (*high - *low);
      for (size_t k = first; k < end; ++k) {
        weight_error[o * n_cols + k] =
            kUnit * (is_float ? static_cast<double>(std::fabs(row[k])) : 3 * size);
      }
    }
  }
  std::vector<double> out(rows * matrix.n_rows);
  for (size_t r = 0; r < rows; ++r) {
    double largest = 0;
    for (size_t k = 0; k < n_cols; ++k)
      largest = std::max(largest, static_cast<double>(std::fabs(x[r * n_cols + k])));
    for (size_t o = 0; o < matrix.n_rows; ++o) {
      double sum = 0;
      double magnitudes = 0;
      for (size_t k = 0; k < n_cols; ++k) {
        const double value = std::fabs(static_cast<double>(x[r * n_cols + k]));
        const double weight = std::fabs(static_cast<double>(matrix.values[o * n_cols + k]));
        sum += (value * kUnit + largest * 0x1p-39) * (weight + weight_error[o * n_cols + k]) +
               value * weight_error[o * n_cols + k];
        magnitudes += value * weight;
      }
      out[r * matrix.n_rows + o] = sum + 4 * rounding_bound(magnitudes, n_cols);
    }
  }
  return out;
}

double relative_error(const std::vector<double>& expected, const std::vector<float>& found) {
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (expected[i] - found[i]) * (expected[i] - found[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

TEST_F(CudaLinear, packed_weights_take_the_bytes_of_the_file) {
  for (const QuantType type : all_types()) {
    for (const uint32_t n_cols : {2048U, 8192U, 28672U}) {
      const auto file = static_cast<double>(quant_bytes(type, size_t{n_cols} * 4096));
      const auto packed = static_cast<double>(LinearOperator::packed_bytes(type, 4096, n_cols));
      EXPECT_LT(packed, 1.002 * file) << quant_traits(type).name;
      EXPECT_GE(packed, file) << quant_traits(type).name;
    }
  }
}

TEST_F(CudaLinear, embedding_gives_the_bits_of_the_reference_decoder) {
  Random random(1);
  for (const QuantType type : all_types()) {
    for (const uint32_t n_cols : awkward_columns(type)) {
      const Matrix table = random_matrix(type, 37, n_cols, random);
      const std::vector<uint32_t> ids = {0, 36, 7, 8, 15, 16, 31, 9, 7};
      std::vector<float> expected;
      for (const uint32_t id : ids) {
        const auto row = rows_of(table.values, id, 1, n_cols);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      const Buffer on_device(ids);
      for (const MatrixView& view : {table.file_view(), table.view()}) {
        const Buffer out = poisoned(expected.size());
        linear_->embed(
            view, reinterpret_cast<const uint32_t*>(on_device.data()),
            static_cast<uint32_t>(ids.size()), out.floats(), nullptr);
        EXPECT_TRUE(same_bits(expected, out.read<float>()))
            << quant_traits(type).name << ", " << n_cols << " columns, "
            << (view.layout == WeightLayout::packed ? "packed" : "as in the file");
      }
    }
  }
}

TEST_F(CudaLinear, agrees_with_double_at_awkward_sizes) {
  Random random(2);
  for (const QuantType type : all_types()) {
    for (const uint32_t n_cols : awkward_columns(type)) {
      for (const uint32_t n_rows : {1U, 16U, 67U}) {
        const Matrix matrix = random_matrix(type, n_rows, n_cols, random);
        for (const uint32_t rows : {1U, 2U, 8U, 9U, 17U, 33U, 64U, 65U, 130U}) {
          const std::vector<float> x = random.normals(size_t{rows} * n_cols);
          const std::vector<float> found = apply(matrix.view(), x);
          const std::vector<double> expected = reference(matrix, x);
          const std::vector<double> tolerance = tolerances(matrix, x);
          WorstElement worst;
          for (size_t i = 0; i < expected.size(); ++i)
            worst.add_checked(i / n_rows, i % n_rows, expected[i], found[i], tolerance[i]);
          ASSERT_LE(worst.ratio(), 1.0) << quant_traits(type).name << " " << n_rows << " x "
                                        << n_cols << ", " << rows << " rows: " << worst.text();
        }
      }
    }
  }
}

TEST_F(CudaLinear, errors_are_those_of_rounding_to_half) {
  Random random(3);
  for (const QuantType type : all_types()) {
    const Matrix matrix = random_matrix(type, 128, 2048, random);
    const std::vector<float> x = random.normals(size_t{20} * 2048);
    const double error = relative_error(reference(matrix, x), apply(matrix.view(), x));
    std::printf("%-5s relative error %.3g\n", quant_traits(type).name, error);
    EXPECT_LT(error, 4.5e-4) << quant_traits(type).name;
    EXPECT_GT(error, 1e-5) << quant_traits(type).name << ": too good to have been rounded";
  }
}

TEST_F(CudaLinear, bias_sums_and_places_of_the_parts) {
  Random random(4);
  const Matrix first = random_matrix(QuantType::q4_k, 40, 512, random);
  const Matrix second = random_matrix(QuantType::q6_k, 19, 512, random);
  const Matrix third = random_matrix(QuantType::q4_k, 33, 512, random);
  const std::vector<float> bias = random.normals(19);
  const Buffer bias_on_device(bias);
  for (const uint32_t rows : {1U, 11U, 20U, 50U, 100U}) {
    const std::vector<float> x = random.normals(size_t{rows} * 512);
    const std::vector<float> alone[] = {
        apply(first.view(), x), apply(second.view(), x), apply(third.view(), x)};
    constexpr uint32_t kStride = 101;
    const std::vector<float> before = random.normals(size_t{rows} * kStride);
    const Buffer out(before);
    LinearPart parts[3];
    parts[0] = {first.view(), nullptr, out.floats(), kStride, 3, false};
    parts[1] = {second.view(), bias_on_device.floats(), out.floats(), kStride, 44, false};
    parts[2] = {third.view(), nullptr, out.floats(), kStride, 64, true};
    const Buffer input(x);
    const Buffer memory = room_for_input(rows, 512);
    linear_->apply(
        linear_->prepare(input.floats(), rows, 512, memory.data(), nullptr), parts, nullptr);
    std::vector<float> expected = before;
    for (uint32_t r = 0; r < rows; ++r) {
      float* const row = expected.data() + size_t{r} * kStride;
      for (uint32_t o = 0; o < 40; ++o)
        row[3 + o] = alone[0][r * 40 + o];
      for (uint32_t o = 0; o < 19; ++o)
        row[44 + o] = alone[1][r * 19 + o] + bias[o];
      for (uint32_t o = 0; o < 33; ++o)
        row[64 + o] += alone[2][r * 33 + o];
    }
    EXPECT_TRUE(same_bits(expected, out.read<float>())) << rows << " rows";
  }
}

TEST_F(CudaLinear, an_outlier_costs_the_others_nothing) {
  Random random(9);
  const uint32_t n_cols = 2048;
  for (const QuantType type : {QuantType::q4_k, QuantType::q6_k, QuantType::q8_0}) {
    const Matrix matrix = random_matrix(type, 64, n_cols, random);
    std::vector<float> x = random.normals(size_t{9} * n_cols);
    const std::vector<float> ordinary = x;
    for (size_t row = 0; row < 9; ++row)
      x[row * n_cols + 700] = 1e6F;
    const double error = relative_error(reference(matrix, x), apply(matrix.view(), x));
    std::printf(
        "%-5s relative error with 1e6 in one channel %.3g\n", quant_traits(type).name, error);
    EXPECT_LT(error, 4.5e-4);
  }
  // Where the outlier meets a weight of zero, the sum of all others is left.
  std::vector<std::byte> file = random_blocks(QuantType::q8_0, size_t{64} * n_cols, random);
  for (size_t row = 0; row < 64; ++row)
    file[row * quant_bytes(QuantType::q8_0, n_cols) + 34 * (700 / 32) + 2 + 700 % 32] =
        std::byte{0};
  const Matrix matrix = pack(QuantType::q8_0, 64, n_cols, file);
  std::vector<float> x = random.normals(n_cols);
  x[700] = 1e6F;
  const double error = relative_error(reference(matrix, x), apply(matrix.view(), x));
  std::printf("beside an outlier with weight 0: %.3g\n", error);
  EXPECT_LT(error, 4.5e-4);
}

TEST_F(CudaLinear, zeros_extremes_and_what_is_no_number) {
  Random random(10);
  for (const QuantType type : {QuantType::q8_0, QuantType::q4_k, QuantType::f16}) {
    const Matrix matrix = random_matrix(type, 16, 256, random);
    for (const uint32_t rows : {1U, 70U}) {
      const size_t n = size_t{rows} * 256;
      for (const float value : apply(matrix.view(), std::vector<float>(n, 0.0F)))
        EXPECT_EQ(value, 0.0F);
      for (const float value : apply(matrix.view(), std::vector<float>(n, 1e-41F)))
        EXPECT_LT(std::fabs(value), 1e-35F);
      for (const float value : apply(matrix.view(), std::vector<float>(n, 1e35F)))
        EXPECT_TRUE(std::isfinite(value));
      for (const float wrong : {NAN, HUGE_VALF, -HUGE_VALF}) {
        std::vector<float> x(n, 1.0F);
        x[40] = wrong;
        const std::vector<float> found = apply(matrix.view(), x);
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_EQ(std::isfinite(found[i]), i >= 16) << "output " << i;
      }
    }
  }
}

// Rows of W whose scales differ by 10^8 keep their accuracy, and so does a matrix of tiny values.
TEST_F(CudaLinear, scales_of_any_size_keep_their_accuracy) {
  Random random(11);
  const uint32_t n_cols = 512;
  for (const QuantType type : {QuantType::q8_0, QuantType::q5_1, QuantType::f32, QuantType::bf16}) {
    std::vector<std::byte> file = random_blocks(type, size_t{8} * n_cols, random);
    const size_t row_bytes = quant_bytes(type, n_cols);
    for (size_t row = 0; row < 8; ++row) {
      const float scale = std::pow(10.0F, static_cast<float>(row) - 6.0F);
      for (size_t at = 0; at < row_bytes; at += quant_traits(type).block_bytes) {
        std::byte* const block = file.data() + row * row_bytes + at;
        const float value = scale * random.uniform(0.5F, 1.0F);
        if (type == QuantType::f32) {
          std::memcpy(block, &value, 4);
        } else if (type == QuantType::bf16) {
          std::memcpy(block, reinterpret_cast<const std::byte*>(&value) + 2, 2);
        } else {
          put_half(block, value);
          if (type == QuantType::q5_1) put_half(block + 2, -16.0F * value);
        }
      }
    }
    const Matrix matrix = pack(type, 8, n_cols, file);
    const std::vector<float> x = random.normals(size_t{4} * n_cols);
    const std::vector<double> expected = reference(matrix, x);
    const std::vector<float> found = apply(matrix.view(), x);
    for (size_t o = 0; o < 8; ++o) {
      std::vector<double> expected_row;
      std::vector<float> found_row;
      for (size_t r = 0; r < 4; ++r) {
        expected_row.push_back(expected[r * 8 + o]);
        found_row.push_back(found[r * 8 + o]);
      }
      EXPECT_LT(relative_error(expected_row, found_row), 3e-3)
          << quant_traits(type).name << " row " << o;
    }
  }
}

TEST_F(CudaLinear, exact_rounds_only_as_float_does) {
  Random random(12);
  for (const QuantType type : all_types()) {
    for (const uint32_t n_cols : awkward_columns(type)) {
      const Matrix matrix = random_matrix(type, 35, n_cols, random);
      const uint32_t rows = 19;
      const std::vector<float> x = random.normals(size_t{rows} * n_cols);
      const Buffer input(x);
      std::vector<float> found[2];
      for (const MatrixView& view : {matrix.view(), matrix.file_view()}) {
        const Buffer out = poisoned(size_t{rows} * 35);
        const LinearPart part{view, nullptr, out.floats(), 35, 0, false};
        linear_->apply_exact(input.floats(), rows, n_cols, {&part, 1}, nullptr);
        found[view.layout == WeightLayout::file] = out.read<float>();
      }
      EXPECT_TRUE(same_bits(found[0], found[1])) << quant_traits(type).name;
      const std::vector<double> expected = reference(matrix, x);
      for (size_t i = 0; i < expected.size(); ++i) {
        double magnitudes = 0;
        for (size_t k = 0; k < n_cols; ++k) {
          magnitudes += std::fabs(
              static_cast<double>(matrix.values[i % 35 * n_cols + k]) *
              static_cast<double>(x[i / 35 * n_cols + k]));
        }
        ASSERT_NEAR(found[0][i], expected[i], rounding_bound(magnitudes, n_cols))
            << quant_traits(type).name << ", " << n_cols << " columns";
      }
    }
  }
}

void expect_same_words(const Buffer& a, const Buffer& b) {
  const auto words = a.read<uint32_t>();
  const auto others = b.read<uint32_t>();
  ASSERT_EQ(words.size(), others.size());
  const auto [at, other] = std::mismatch(words.begin(), words.end(), others.begin());
  EXPECT_TRUE(at == words.end()) << "word " << at - words.begin() << " of " << words.size() << ": "
                                 << *at << " and " << *other;
}

TEST_F(CudaLinear, norm_and_gate_before_the_product_have_the_bits_of_their_parts) {
  Random random(13);
  for (const uint32_t n_cols : {33U, 576U, 8192U, 28672U}) {
    const uint32_t rows = 3;
    const std::vector<float> x = random.normals(size_t{rows} * n_cols);
    const std::vector<float> weight = random.normals(n_cols);
    const std::vector<float> up = random.normals(size_t{rows} * n_cols);
    const Buffer on_device(x);
    const Buffer weight_on_device(weight);
    const Buffer up_on_device(up);
    const size_t input_bytes = LinearOperator::input_bytes(rows, n_cols);
    const Buffer fused(std::vector<std::byte>(input_bytes, std::byte{}));
    const Buffer parts(std::vector<std::byte>(input_bytes, std::byte{}));
    const Buffer values = poisoned(size_t{rows} * n_cols);

    linear_->prepare_rms_norm(
        on_device.floats(), weight_on_device.floats(), 1e-5F, rows, n_cols, nullptr, fused.data(),
        nullptr);
    linear_->rms_norm(
        on_device.floats(), weight_on_device.floats(), 1e-5F, rows, n_cols, values.floats(),
        nullptr);
    linear_->prepare(values.floats(), rows, n_cols, parts.data(), nullptr);
    expect_same_words(fused, parts);
    const std::vector<float> normed = values.read<float>();
    for (size_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (size_t i = 0; i < n_cols; ++i)
        sum += static_cast<double>(x[r * n_cols + i]) * static_cast<double>(x[r * n_cols + i]);
      for (size_t i = 0; i < n_cols; ++i) {
        const double expected = static_cast<double>(x[r * n_cols + i]) /
                                std::sqrt(sum / n_cols + 1e-5) * static_cast<double>(weight[i]);
        ASSERT_NEAR(normed[r * n_cols + i], expected, 2e-6 * std::fabs(expected) + 1e-12);
      }
    }

    linear_->prepare_gated(
        on_device.floats(), up_on_device.floats(), rows, n_cols, values.floats(), fused.data(),
        nullptr);
    linear_->prepare(values.floats(), rows, n_cols, parts.data(), nullptr);
    expect_same_words(fused, parts);
    const Buffer alone = poisoned(size_t{rows} * n_cols);
    swiglu(
        on_device.floats(), up_on_device.floats(), size_t{rows} * n_cols, alone.floats(), nullptr);
    expect_same_words(values, alone);
    const std::vector<float> gated = values.read<float>();
    for (size_t i = 0; i < gated.size(); ++i) {
      const auto gate = static_cast<double>(x[i]);
      const double expected = gate / (1 + std::exp(-gate)) * static_cast<double>(up[i]);
      ASSERT_NEAR(gated[i], expected, 1e-6 * std::fabs(expected) + 1e-12);
    }
  }
}

// However many blocks share a row, which follows from the number of rows.
TEST_F(CudaLinear, a_gated_row_is_scaled_by_its_largest_value) {
  Random random(14);
  for (const uint32_t n_cols : {8200U, 14336U, 28672U}) {
    for (const uint32_t rows : {3U, 16U, 20U, 33U, 66U, 70U}) {
      const std::vector<float> gate = random.normals(size_t{rows} * n_cols);
      std::vector<float> up = random.normals(gate.size());
      for (uint32_t row = 0; row < rows; ++row)
        up[size_t{row} * n_cols + row * 4999U % n_cols] = 1e4F * static_cast<float>(row + 1);
      const Buffer gate_on_device(gate);
      const Buffer up_on_device(up);
      const Buffer values = poisoned(gate.size());
      const Buffer memory = room_for_input(rows, n_cols);
      linear_->prepare_gated(
          gate_on_device.floats(), up_on_device.floats(), rows, n_cols, values.floats(),
          memory.data(), nullptr);
      const std::vector<float> gated = values.read<float>();
      const std::vector<float> prepared = memory.read<float>();
      const size_t n_groups = (rows + kInputRowStep - 1) / kInputRowStep;
      const float* const scales =
          prepared.data() + n_groups * chunk_count(n_cols) * kInputChunkBytes / sizeof(float);
      for (uint32_t row = 0; row < rows; ++row) {
        float largest = 0;
        for (uint32_t i = 0; i < n_cols; ++i)
          largest = std::max(largest, std::fabs(gated[size_t{row} * n_cols + i]));
        EXPECT_EQ(scales[row], std::exp2(std::floor(std::log2(largest)) - 14))
            << n_cols << " columns, row " << row << " of " << rows;
      }
    }
  }
}

}  // namespace
}  // namespace nightsweep::cuda
