// Memory of a device, and the ways into it.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "support/test_device.h"

namespace nightsweep {
namespace {

class DeviceMemoryTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    NEEDS_GPU(GetParam());
    device_ = make_device(GetParam() ? cuda_spec() : DeviceSpec{});
    device_->reserve(64, 4096);
  }

  static std::vector<std::byte> some_bytes(size_t n, uint32_t seed) {
    std::mt19937 draw(seed);
    std::vector<std::byte> bytes(n);
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(draw());
    return bytes;
  }

  std::vector<std::byte> read(DeviceMemory& memory) {
    const size_t n = memory.size_bytes() / sizeof(float);
    const float* const values = device_->read_back(memory.floats(), n);
    std::vector<std::byte> bytes(n * sizeof(float));
    std::memcpy(bytes.data(), values, bytes.size());
    return bytes;
  }

  std::unique_ptr<Device> device_;
};

constexpr size_t kMiBytes = size_t{1} << 20;

// Small and large ones go different ways.
TEST_P(DeviceMemoryTest, what_was_uploaded_is_there_whatever_becomes_of_the_source) {
  auto memory = device_->allocate(20 * kMiBytes);
  std::vector<std::byte> expected = some_bytes(memory->size_bytes(), 1);
  device_->upload(expected.data(), expected.size(), memory->data());
  ASSERT_EQ(read(*memory), expected);
  uint32_t seed = 2;
  for (const size_t size_bytes :
       {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{4096}, size_t{4097},
        kMiBytes + 3, 8 * kMiBytes, 8 * kMiBytes + 1, 17 * kMiBytes}) {
    for (const size_t at : {size_t{0}, size_t{16}, size_t{4096}, size_t{20}, size_t{1}}) {
      auto source = device_->allocate_host(std::max<size_t>(size_bytes, 1));
      const std::vector<std::byte> bytes = some_bytes(size_bytes, seed++);
      std::copy(bytes.begin(), bytes.end(), source->data());
      device_->upload(source->data(), size_bytes, memory->data() + at);
      std::fill_n(source->data(), size_bytes, std::byte{0xEE});
      std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<ptrdiff_t>(at));
      ASSERT_EQ(read(*memory), expected) << size_bytes << " bytes at " << at;
    }
  }
}

TEST_P(DeviceMemoryTest, memory_of_the_host_is_aligned_and_holds_what_is_copied_from_it) {
  std::vector<std::unique_ptr<DeviceMemory>> kept;
  for (const size_t size_bytes :
       {size_t{1}, size_t{4096}, 8 * kMiBytes - 1, 8 * kMiBytes, 8 * kMiBytes + 1, 33 * kMiBytes}) {
    kept.push_back(device_->allocate_host(size_bytes));
    DeviceMemory& from = *kept.back();
    ASSERT_EQ(from.size_bytes(), size_bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(from.data()) % 4096, 0U);
    const std::vector<std::byte> bytes = some_bytes(size_bytes, static_cast<uint32_t>(size_bytes));
    std::copy(bytes.begin(), bytes.end(), from.data());
    auto to = device_->allocate((size_bytes + 3) / 4 * 4);
    device_->queue_copy(from.data(), size_bytes, to->data());
    const auto event = device_->make_event();
    device_->record(*event, WorkQueue::copies);
    device_->wait(*event);
    std::vector<std::byte> found = read(*to);
    found.resize(size_bytes);
    EXPECT_EQ(found, bytes) << size_bytes << " bytes";
  }
}

// The weights of a norm are read before what is queued ahead of it is over.
TEST_P(DeviceMemoryTest, an_operator_finds_what_was_uploaded_just_before_it) {
  constexpr uint32_t kDim = 4096;
  constexpr uint32_t kRows = 64;
  auto x = device_->allocate(size_t{kRows} * kDim * sizeof(float));
  auto weight = device_->allocate(kDim * sizeof(float));
  auto out = device_->allocate(size_t{kRows} * kDim * sizeof(float));
  const std::vector<float> ones(size_t{kRows} * kDim, 1.0F);
  device_->upload(ones.data(), ones.size() * sizeof(float), x->data());
  for (uint32_t turn = 1; turn <= 50; ++turn) {
    const std::vector<float> weights(kDim, static_cast<float>(turn));
    device_->upload(weights.data(), weights.size() * sizeof(float), weight->data());
    device_->rms_norm(x->floats(), weight->floats(), 0.0F, kRows, kDim, out->floats());
    const float* const found = device_->read_back(out->floats(), size_t{kRows} * kDim);
    for (size_t i = 0; i < size_t{kRows} * kDim; ++i)
      ASSERT_EQ(found[i], static_cast<float>(turn)) << "turn " << turn << ", value " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(devices, DeviceMemoryTest, testing::Bool(), [](const auto& shown) {
  return std::string(shown.param ? "cuda" : "cpu");
});

}  // namespace
}  // namespace nightsweep
