#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "kernels/oracle.h"
#include "kernels/sin_cos.h"
#include "support/test_device.h"

namespace nightsweep {
namespace {

// On the CPU or on a GPU.
class RowsOf : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { NEEDS_GPU(GetParam()); }
  static std::unique_ptr<Device> device() {
    DeviceSpec spec;
    spec.cpu.n_threads = 1;
    spec.is_cuda = GetParam();
    return make_host_device(spec);
  }
};

INSTANTIATE_TEST_SUITE_P(devices, RowsOf, testing::Bool(), [](const auto& shown) {
  return std::string(shown.param ? "cuda" : "cpu");
});

// Runs an operator on every instruction set; all must give the bits of the first.
template <typename Operator>
std::vector<float> on_every_set(bool is_cuda, Operator&& apply) {
  std::vector<float> first;
  if (is_cuda) return apply(*make_host_device(cuda_spec()));
  for (const std::string& set : runnable_sets()) {
    const auto on = make_cpu_device({MathMode::fast, 2, set});
    std::vector<float> found = apply(*on);
    if (first.empty()) first = found;
    EXPECT_TRUE(same_bits(first, found)) << set;
  }
  return first;
}

TEST_P(RowsOf, rms_norm_agrees_with_the_oracle) {
  Random random(31);
  for (const uint32_t dim : {1U, 15U, 16U, 17U, 576U, 2048U}) {
    for (const uint32_t rows : {1U, 3U, 40U}) {
      const std::vector<float> x = random.normals(size_t{rows} * dim);
      const std::vector<float> weight = random.normals(dim);
      const auto found = on_every_set(GetParam(), [&](Device& on) {
        std::vector<float> out(x.size());
        on.rms_norm(x.data(), weight.data(), 1e-5F, rows, dim, out.data());
        return out;
      });
      WorstElement worst;
      for (uint32_t r = 0; r < rows; ++r) {
        double squares = 0;
        for (uint32_t i = 0; i < dim; ++i)
          squares += std::pow(double{x[r * dim + i]}, 2);
        for (uint32_t i = 0; i < dim; ++i) {
          const double expected =
              double{x[r * dim + i]} / std::sqrt(squares / dim + double{1e-5F}) * double{weight[i]};
          const double tolerance = rounding_bound(std::fabs(expected), 8 + dim / 16);
          worst.add_checked(r, i, expected, double{found[r * dim + i]}, tolerance);
        }
      }
      EXPECT_LE(worst.ratio(), 1.0) << dim << ": " << worst.text();
    }
  }
}

// On a GPU the exponent of e^-gate is rounded: |gate| units, by its two factors.
double swiglu_bound(bool is_cuda, double gate, double expected) {
  return rounding_bound(std::fabs(expected), is_cuda ? 8 + 2 * std::ceil(std::fabs(gate)) : 8);
}

TEST_P(RowsOf, swiglu_agrees_with_the_oracle_from_end_to_end) {
  Random random(32);
  std::vector<float> gate = {0.0F,   -0.0F,  1.0F,    -1.0F,  87.0F,   -87.0F, 88.8F,
                             -88.8F, 200.0F, -200.0F, 1e-20F, -1e-20F, 3e38F,  -3e38F};
  while (gate.size() < 10007)
    gate.push_back(random.uniform(-40.0F, 40.0F));
  const std::vector<float> up = random.normals(gate.size());
  const auto found = on_every_set(GetParam(), [&](Device& on) {
    std::vector<float> out = gate;
    on.swiglu(out.data(), up.data(), out.size(), out.data());
    return out;
  });
  WorstElement worst;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    const double expected = g / (1 + std::exp(-g)) * double{up[i]};
    if (std::fabs(expected) > 3e38) continue;
    worst.add_checked(
        0, i, expected, double{found[i]}, swiglu_bound(GetParam(), g, expected) + 1e-36);
  }
  EXPECT_LE(worst.ratio(), 1.0) << worst.text();
}

TEST_P(RowsOf, swiglu_of_every_gate_is_far_nearer_than_half_precision) {
  std::vector<float> gate;
  for (int i = -100 * 256; i <= 100 * 256; ++i)
    gate.push_back(static_cast<float>(i) / 256);
  const std::vector<float> up(gate.size(), 1.0F);
  std::vector<float> found(gate.size());
  device()->swiglu(gate.data(), up.data(), gate.size(), found.data());
  double largest = 0;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    const double expected = g / (1 + std::exp(-g));
    const double error = std::fabs(double{found[i]} - expected);
    // From -87 on the reciprocal is below what is normal in float, and may be zero.
    if (g < -87) {
      EXPECT_LE(error, 1.1 * std::fabs(expected)) << g;
    } else if (g != 0) {
      largest = std::max(largest, error / std::fabs(expected));
    }
  }
  std::printf("largest relative error %.3g\n", largest);
  EXPECT_LT(largest, 0x1p-17);
}

TEST_P(RowsOf, swiglu_of_what_is_no_number_is_none) {
  const std::vector<float> gate = {NAN, 1.0F, -200.0F, HUGE_VALF, -HUGE_VALF, -200.0F, 3.0F};
  const std::vector<float> up = {1.0F, NAN, NAN, 1.0F, 1.0F, HUGE_VALF, 2.0F};
  std::vector<float> found(gate.size());
  device()->swiglu(gate.data(), up.data(), gate.size(), found.data());
  for (size_t i = 0; i + 1 < found.size(); ++i)
    EXPECT_FALSE(std::isfinite(found[i])) << i;
  EXPECT_TRUE(std::isfinite(found.back()));
}

TEST(Rows, sines_and_cosines_are_right_to_the_last_bits) {
  Random random(33);
  for (uint32_t i = 0; i < 200000; ++i) {
    const double angle = double{random.uniform(0.0F, 1.0F)} * (i % 2 == 0 ? 10.0 : 1048576.0);
    const SinCos found = sin_cos(angle);
    ASSERT_NEAR(found.sine, std::sin(angle), 4e-16) << angle;
    ASSERT_NEAR(found.cosine, std::cos(angle), 4e-16) << angle;
  }
  EXPECT_EQ(sin_cos(0.0).sine, 0.0);
  EXPECT_EQ(sin_cos(0.0).cosine, 1.0);
}

TEST_P(RowsOf, rope_turns_pairs_of_both_kinds_and_leaves_the_rest) {
  Random random(34);
  std::vector<double> frequencies(8);
  for (size_t i = 0; i < 8; ++i)
    frequencies[i] = std::pow(10000.0, -static_cast<double>(i) / 8);
  const std::vector<uint32_t> positions = {0, 1, 77, 4095, 100000};
  for (const bool half_split : {false, true}) {
    const std::vector<float> x = random.normals(positions.size() * 3 * 20);
    const RopeShape shape{3, 20, 16, half_split, frequencies, 1.25F};
    const auto found = on_every_set(GetParam(), [&](Device& on) {
      std::vector<float> out = x;
      on.begin_step({.positions = positions});
      on.rope(shape, out.data());
      return out;
    });
    for (size_t head = 0; head < positions.size() * 3; ++head) {
      const float* const in = x.data() + head * 20;
      const float* const out = found.data() + head * 20;
      for (size_t j = 0; j < 8; ++j) {
        const size_t a = half_split ? j : 2 * j;
        const size_t b = half_split ? j + 8 : 2 * j + 1;
        const double angle = positions[head / 3] * frequencies[j];
        const double tolerance = 4e-7 * (std::fabs(in[a]) + std::fabs(in[b]));
        EXPECT_NEAR(out[a], 1.25 * (in[a] * std::cos(angle) - in[b] * std::sin(angle)), tolerance);
        EXPECT_NEAR(out[b], 1.25 * (in[a] * std::sin(angle) + in[b] * std::cos(angle)), tolerance);
      }
      for (size_t i = 16; i < 20; ++i)
        EXPECT_EQ(in[i], out[i]);
    }
  }
}

TEST_P(RowsOf, gather_takes_rows_in_the_order_asked) {
  const auto on = device();
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  const std::vector<uint32_t> rows = {2, 0, 2};
  std::vector<float> out(6);
  on->gather_rows(x.data(), rows, 2, out.data());
  EXPECT_EQ(out, (std::vector<float>{5, 6, 1, 2, 5, 6}));
}

// What comes together on a device gives the bits of its parts.
TEST_P(RowsOf, turning_and_storing_at_once_is_turning_then_storing) {
  Random random(35);
  const auto on = device();
  for (const KvType type : {KvType::f16, KvType::q8_0}) {
    for (const bool half_split : {false, true}) {
      const std::vector<double> frequencies = {1.0, 0.1, 0.01, 0.001};
      const RopeShape q_shape{6, 20, 8, half_split, frequencies, 1.0F};
      const RopeShape k_shape{2, 20, 8, half_split, frequencies, 1.0F};
      const std::vector<uint32_t> positions = {62, 63, 64, 65};
      const std::vector<uint32_t> sequences(4, 0);
      const std::vector<uint32_t> table = {1, 0};
      const std::span<const uint32_t> tables(table);
      const StepRows rows{positions, sequences, {&tables, 1}};
      const KvShape shape{type, 2, 20};
      const size_t page_bytes = on->kv_page_bytes(shape);
      const std::vector<float> v = random.normals(4 * 40);
      std::vector<float> q = random.normals(4 * 120);
      std::vector<float> k = random.normals(4 * 40);
      std::vector<float> q_apart = q;
      std::vector<float> k_apart = k;
      const auto together = on->allocate(2 * page_bytes);
      const auto apart = on->allocate(2 * page_bytes);
      std::memset(together->data(), 0, 2 * page_bytes);
      std::memset(apart->data(), 0, 2 * page_bytes);
      on->begin_step(rows);
      on->rope(q_shape, q_apart.data());
      on->rope(k_shape, k_apart.data());
      on->store_kv({shape, apart->data(), page_bytes}, k_apart.data(), v.data());
      on->rope_and_store(
          q_shape, k_shape, {shape, together->data(), page_bytes}, q.data(), k.data(), v.data());
      EXPECT_TRUE(same_bits(q, q_apart));
      EXPECT_EQ(std::memcmp(together->data(), apart->data(), 2 * page_bytes), 0);
    }
  }
}

TEST(CpuDevice, names_itself_and_refuses_an_unknown_instruction_set) {
  const auto on = make_cpu_device({MathMode::exact, 3, "generic"});
  EXPECT_EQ(on->description(), "cpu, generic, 3 threads, exact");
  EXPECT_EQ(on->kernel_version(), "cpu-exact-1");
  try {
    make_cpu_device({MathMode::fast, 1, "mmx"});
    FAIL() << "mmx was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string(error.what()).find("\"mmx\""), std::string::npos);
  }
}

TEST(CpuDevice, memory_is_aligned_and_an_impossible_size_is_refused) {
  const auto on = make_cpu_device({MathMode::fast, 1, ""});
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4097}, size_t{20} << 20}) {
    const auto memory = on->allocate(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 4096, 0U);
    EXPECT_EQ(memory->size_bytes(), size);
    if (size > 0) memory->data()[size - 1] = std::byte{1};
  }
  EXPECT_THROW(on->allocate(SIZE_MAX), Error);
  EXPECT_THROW(on->allocate(size_t{1} << 50), Error);
}

TEST(CpuDevice, an_input_beyond_the_reserved_room_is_a_fault) {
  const auto on = make_cpu_device({MathMode::fast, 1, ""});
  on->reserve(2, 64);
  const std::vector<float> x(256);
  EXPECT_THROW(on->set_input(x.data(), 3, 64), Error);
  EXPECT_THROW(on->set_input(x.data(), 1, 96), Error);
}

}  // namespace
}  // namespace nightsweep
