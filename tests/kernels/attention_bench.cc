// Times decode attention of a GPU: attention_bench [SEQUENCES CONTEXT HEADS KV_HEADS HEAD_DIM]...
// Five numbers a case; without any, a list of cases. Random pages in random order. No test: ctest
// does not run it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "kernels/device.h"

namespace nightsweep {
namespace {

struct Case {
  uint32_t n_sequences;
  uint32_t context;
  uint32_t n_heads;
  uint32_t n_kv_heads;
  uint32_t head_dim;
};

// Microseconds of one call: layers enough that no page is in the cache from the call before.
double time_decode(Device& device, const Case& shape, KvType type) {
  const KvShape kv{type, shape.n_kv_heads, shape.head_dim};
  const size_t page_bytes = device.kv_page_bytes(kv);
  const uint32_t n_pages = (shape.context + kKvPageTokens - 1) / kKvPageTokens;
  const size_t layer_bytes = page_bytes * n_pages * shape.n_sequences;
  const size_t n_layers = std::clamp<size_t>((size_t{1} << 30) / layer_bytes, 2, 64);
  auto memory = device.allocate(layer_bytes * n_layers);
  const size_t row_floats = size_t{shape.n_heads} * shape.head_dim;
  auto q = device.allocate(shape.n_sequences * row_floats * sizeof(float));
  auto out = device.allocate(shape.n_sequences * row_floats * sizeof(float));

  std::mt19937 random(1);
  // Halves and bytes of moderate size, whatever they are read as.
  std::vector<std::byte> values(layer_bytes);
  constexpr size_t kDrawn = size_t{1} << 20;  // then again
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = i >= kDrawn ? values[i - kDrawn]
                            : static_cast<std::byte>(i % 2 == 0 ? random() : random() % 4 + 0x2C);
  }
  for (size_t layer = 0; layer < n_layers; ++layer)
    device.upload(values.data(), values.size(), memory->data() + layer * layer_bytes);
  std::vector<float> queries(shape.n_sequences * row_floats);
  for (float& query : queries)
    query = std::normal_distribution<float>()(random);
  device.upload(queries.data(), queries.size() * sizeof(float), q->data());

  std::vector<uint32_t> pages(size_t{n_pages} * shape.n_sequences);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  std::vector<std::span<const uint32_t>> tables;
  std::vector<uint32_t> positions(shape.n_sequences, shape.context - 1);
  std::vector<uint32_t> sequences(shape.n_sequences);
  std::iota(sequences.begin(), sequences.end(), 0);
  for (uint32_t s = 0; s < shape.n_sequences; ++s)
    tables.emplace_back(pages.data() + size_t{s} * n_pages, n_pages);
  device.begin_step({positions, sequences, tables});

  const auto run = [&](size_t n_calls) {
    const auto begun = std::chrono::steady_clock::now();
    for (size_t i = 0; i < n_calls; ++i) {
      const KvLayer layer{kv, memory->data() + i % n_layers * layer_bytes, page_bytes};
      device.attention(layer, q->floats(), shape.n_heads, 0.088F, out->floats());
    }
    device.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  run(n_layers);
  constexpr size_t kCalls = 64;
  std::vector<double> times;
  for (int repeat = 0; repeat < 5; ++repeat)
    times.push_back(run(kCalls) / kCalls * 1e6);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int run_cases(const std::vector<Case>& cases) {
  auto device = make_cuda_device({});
  device->reserve(512, 8192);
  std::printf("%s\n", device->description().c_str());
  for (const Case& shape : cases) {
    for (const KvType type : {KvType::f16, KvType::q8_0}) {
      const double us = time_decode(*device, shape, type);
      const double element_bytes = type == KvType::f16 ? 2.0 : 34.0 / 32;
      const double bytes = 2.0 * shape.n_sequences * shape.context * shape.n_kv_heads *
                           shape.head_dim * element_bytes;
      std::printf(
          "%4u x %6u, %u/%u heads of %u, %-4s %9.1f us %7.2f TB/s\n", shape.n_sequences,
          shape.context, shape.n_heads, shape.n_kv_heads, shape.head_dim, kv_type_name(type), us,
          bytes / us * 1e-6);
    }
  }
  return 0;
}

}  // namespace
}  // namespace nightsweep

int main(int argc, char** argv) {
  using namespace nightsweep;  // NOLINT(google-build-using-namespace): only here
  std::vector<Case> cases;
  const auto number = [&](int i) {
    return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10));
  };
  for (int i = 1; i + 4 < argc; i += 5)
    cases.push_back({number(i), number(i + 1), number(i + 2), number(i + 3), number(i + 4)});
  if (cases.empty()) {
    cases = {{64, 4096, 64, 8, 128}, {1, 2048, 64, 8, 128},  {16, 2048, 64, 8, 128},
             {256, 160, 32, 8, 128}, {1, 160, 32, 8, 128},   {4, 131072, 64, 8, 128},
             {64, 4096, 32, 8, 64},  {16, 4096, 16, 16, 256}};
  }
  try {
    return run_cases(cases);
  } catch (const Error& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
    return static_cast<int>(error.kind());
  }
}
