#include "kernels/quant.h"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <iterator>
#include <set>

#include "kernels/oracle.h"
#include "support/cases.h"

namespace nightsweep {
namespace {

std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::byte> bytes(chars.size());
  std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

TEST(Quant, every_type_decodes_bit_for_bit_as_the_shared_cases_say) {
  NEEDS_CASES("quant");
  for (const QuantType type : all_types()) {
    const QuantTraits& traits = quant_traits(type);
    if (type == QuantType::f32) continue;
    const std::string path = cases_folder() + "/quant/" + traits.name;
    const std::vector<std::byte> bytes = read_bytes(path + ".bin");
    const std::vector<std::byte> expected = read_bytes(path + ".f32");
    const size_t n_elems = bytes.size() / traits.block_bytes * traits.block_elems;
    ASSERT_EQ(expected.size(), n_elems * sizeof(float)) << path;
    const std::vector<float> found = dequantized(type, bytes, n_elems);
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), expected.size()), 0) << traits.name;
  }
}

TEST(Quant, traits_name_each_type_and_no_removed_number) {
  std::set<std::string> names;
  for (uint32_t number = 0; number < 100; ++number) {
    const QuantTraits* traits = find_quant_traits(number);
    if (traits == nullptr) continue;
    EXPECT_EQ(traits->ggml_type, number);
    EXPECT_GT(traits->block_bytes, 0U);
    EXPECT_TRUE(names.insert(traits->name).second) << traits->name;
  }
  for (const uint32_t removed : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U, 43U, 0xFFFFFFFFU}) {
    EXPECT_EQ(find_quant_traits(removed), nullptr) << removed;
  }
  EXPECT_STREQ(quant_traits(QuantType::q4_k).name, "Q4_K");
  EXPECT_TRUE(quant_traits(QuantType::bf16).can_compute);
  EXPECT_FALSE(find_quant_traits(10)->can_compute);
  EXPECT_EQ(quant_bytes(QuantType::q6_k, 512), 420U);
}

TEST(Quant, halves_survive_the_way_to_float_and_back) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half);
    const bool is_nan = (bits & 0x7C00) == 0x7C00 && (bits & 0x3FF) != 0;
    ASSERT_EQ(std::isnan(value), is_nan) << bits;
    ASSERT_EQ(float_to_half(value), is_nan ? half | 0x200 : half) << bits;
  }
}

TEST(Quant, floats_round_to_the_nearest_half_ties_to_even) {
  for (uint32_t bits = 0; bits + 1 < 0x7C00; ++bits) {
    const auto low = static_cast<double>(half_to_float(static_cast<uint16_t>(bits)));
    const auto high = static_cast<double>(half_to_float(static_cast<uint16_t>(bits + 1)));
    const auto middle = static_cast<float>((low + high) / 2);
    const uint32_t even = bits + (bits & 1);
    ASSERT_EQ(float_to_half(middle), even) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0F)), bits);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9F)), bits + 1);
    ASSERT_EQ(float_to_half(-middle), even | 0x8000);
  }
  EXPECT_EQ(float_to_half(65519.996F), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_half(-HUGE_VALF), 0xFC00);
}

}  // namespace
}  // namespace nightsweep
