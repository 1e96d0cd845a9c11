#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>

#include "kernels/oracle.h"
#include "support/test_device.h"

namespace nightsweep {
namespace {

struct Heads {
  uint32_t n_heads;
  uint32_t n_kv_heads;
  uint32_t head_dim;
};

// Keys, values and queries of one sequence from position 0 on.
struct Sequence {
  Heads heads;
  uint32_t length;
  std::vector<float> q;  // (length, n_heads, head_dim)
  std::vector<float> k;  // (length, n_kv_heads, head_dim)
  std::vector<float> v;

  uint32_t q_floats() const { return heads.n_heads * heads.head_dim; }
  uint32_t kv_floats() const { return heads.n_kv_heads * heads.head_dim; }
};

Sequence random_sequence(const Heads& heads, uint32_t length, Random& random) {
  const size_t q = size_t{length} * heads.n_heads * heads.head_dim;
  const size_t kv = size_t{length} * heads.n_kv_heads * heads.head_dim;
  return {heads, length, random.normals(q), random.normals(kv), random.normals(kv)};
}

// Pages that begin as NaN, so that reading what was never written shows.
class Pages {
 public:
  Pages(Device& device, const KvShape& shape, uint32_t n_pages)
      : memory_(device.allocate(device.kv_page_bytes(shape) * n_pages)),
        layer_{shape, memory_->data(), device.kv_page_bytes(shape)} {
    std::memset(memory_->data(), 0xFF, memory_->size_bytes());
  }
  const KvLayer& layer() const { return layer_; }

 private:
  std::unique_ptr<DeviceMemory> memory_;
  KvLayer layer_;
};

float scale_of(const Heads& heads) {
  return 1.0F / std::sqrt(static_cast<float>(heads.head_dim));
}

// Stores and attends in chunks of the given size; page i of the sequence is page_table[i].
std::vector<float> run_in_chunks(
    Device& on,
    KvType type,
    const Sequence& sequence,
    uint32_t chunk,
    const std::vector<uint32_t>& page_table) {
  const Pages pages(on, {type, sequence.heads.n_kv_heads, sequence.heads.head_dim}, 64);
  std::vector<float> out(sequence.q.size(), NAN);
  const std::span<const uint32_t> table(page_table);
  for (uint32_t first = 0; first < sequence.length; first += chunk) {
    const uint32_t n = std::min(chunk, sequence.length - first);
    std::vector<uint32_t> positions(n);
    std::iota(positions.begin(), positions.end(), first);
    const std::vector<uint32_t> sequences(n, 0);
    const StepRows rows{positions, sequences, {&table, 1}};
    const size_t kv_from = size_t{first} * sequence.kv_floats();
    const size_t q_from = size_t{first} * sequence.q_floats();
    on.begin_step(rows);
    on.store_kv(pages.layer(), sequence.k.data() + kv_from, sequence.v.data() + kv_from);
    on.attention(
        pages.layer(), sequence.q.data() + q_from, sequence.heads.n_heads, scale_of(sequence.heads),
        out.data() + q_from);
  }
  return out;
}

std::vector<uint32_t> pages_in_order() {
  std::vector<uint32_t> table(64);
  std::iota(table.begin(), table.end(), 0);
  return table;
}

std::vector<uint32_t> pages_backwards() {
  std::vector<uint32_t> table = pages_in_order();
  std::reverse(table.begin(), table.end());
  return table;
}

// A value as the page holds it.
std::vector<double> stored(KvType type, const std::vector<float>& x, uint32_t head_dim) {
  std::vector<double> result(x.begin(), x.end());
  if (type == KvType::f16) {
    for (size_t i = 0; i < x.size(); ++i) {
      result[i] = static_cast<double>(half_to_float(float_to_half(x[i])));
    }
  }
  if (type != KvType::q8_0) return result;
  for (size_t head = 0; head < x.size(); head += head_dim) {
    for (size_t first = head; first < head + head_dim; first += 32) {
      const size_t end = std::min(first + 32, head + head_dim);
      float largest = 0.0F;
      for (size_t i = first; i < end; ++i)
        largest = std::max(largest, std::fabs(x[i]));
      const float scale = half_to_float(float_to_half(largest / 127.0F));
      for (size_t i = first; i < end; ++i) {
        const float q = std::nearbyint(x[i] * (1.0F / scale));
        result[i] = static_cast<double>(scale) * std::clamp(q, -127.0F, 127.0F);
      }
    }
  }
  return result;
}

// softmax(scale q k) v in double, for one row; tolerance beside each value. input_rounding: of the
// numbers that go into a product, relative.
WorstElement compare_with_oracle(
    KvType type,
    const Sequence& sequence,
    const std::vector<float>& found,
    double input_rounding) {
  const Heads& heads = sequence.heads;
  const std::vector<double> k = stored(type, sequence.k, heads.head_dim);
  const std::vector<double> v = stored(type, sequence.v, heads.head_dim);
  WorstElement worst;
  for (uint32_t row = 0; row < sequence.length; ++row) {
    if (sequence.length > 100 && row % 37 != 0 && row + 1 != sequence.length) continue;
    for (uint32_t h = 0; h < heads.n_heads; ++h) {
      const uint32_t kv_head = h / (heads.n_heads / heads.n_kv_heads);
      const float* const q = sequence.q.data() + (row * heads.n_heads + h) * heads.head_dim;
      const auto at = [&](const std::vector<double>& x, uint32_t t, uint32_t d) {
        return x[(t * heads.n_kv_heads + kv_head) * heads.head_dim + d];
      };
      std::vector<double> scores(row + 1);
      double score_error = 0;
      for (uint32_t t = 0; t <= row; ++t) {
        double magnitudes = 0;
        for (uint32_t d = 0; d < heads.head_dim; ++d) {
          const double product =
              static_cast<double>(q[d]) * static_cast<double>(scale_of(heads)) * at(k, t, d);
          scores[t] += product;
          magnitudes += std::fabs(product);
        }
        score_error = std::max(
            score_error,
            rounding_bound(magnitudes, heads.head_dim + 4) + 2 * input_rounding * magnitudes);
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (double& score : scores)
        total += score = std::exp(score - largest);
      for (uint32_t d = 0; d < heads.head_dim; ++d) {
        double sum = 0;
        double magnitudes = 0;
        for (uint32_t t = 0; t <= row; ++t) {
          sum += scores[t] / total * at(v, t, d);
          magnitudes += scores[t] / total * std::fabs(at(v, t, d));
        }
        // A score's error e changes a weight by a factor within 1 +- 2e; exp and the sums round.
        const double tolerance = 4 * score_error * magnitudes +
                                 rounding_bound(magnitudes, row + 32) +
                                 2 * input_rounding * (magnitudes + (row + 1) * 0x1p-12);
        worst.add_checked(
            row, h * heads.head_dim + d, sum,
            static_cast<double>(found[(row * heads.n_heads + h) * heads.head_dim + d]), tolerance);
      }
    }
  }
  return worst;
}

const std::vector<Heads>& head_shapes() {
  static const std::vector<Heads> shapes = {{9, 3, 64}, {4, 1, 128}, {5, 5, 16},
                                            {3, 1, 40}, {2, 2, 80},  {35, 1, 32},
                                            {6, 2, 20}, {2, 1, 96},  {2, 1, 256}};
  return shapes;
}

// Of a product's inputs on a GPU: half precision.
constexpr double kHalfRounding = 0x1p-11;

const char* name_of(KvType type) {
  return type == KvType::f32 ? "f32" : type == KvType::f16 ? "f16" : "q8_0";
}

// Device and type of the pages.
class AttentionOf : public testing::TestWithParam<std::pair<bool, KvType>> {
 protected:
  void SetUp() override { NEEDS_GPU(is_cuda()); }
  static bool is_cuda() { return GetParam().first; }
  static KvType type() { return GetParam().second; }
  static DeviceSpec spec(uint32_t n_threads = 2, const std::string& set = "") {
    DeviceSpec spec;
    spec.cpu.n_threads = n_threads;
    spec.cpu.instruction_set = set;
    spec.is_cuda = is_cuda();
    return spec;
  }
  static std::unique_ptr<Device> device() { return make_host_device(spec()); }
  // A GPU has its one set.
  static std::vector<std::string> sets() {
    return is_cuda() ? std::vector<std::string>{""} : runnable_sets();
  }
};

INSTANTIATE_TEST_SUITE_P(
    devices,
    AttentionOf,
    testing::Values(
        std::pair(false, KvType::f32),
        std::pair(false, KvType::f16),
        std::pair(false, KvType::q8_0),
        std::pair(true, KvType::f16),
        std::pair(true, KvType::q8_0)),
    [](const auto& shown) {
      return std::string(shown.param.first ? "cuda_" : "cpu_") + name_of(shown.param.second);
    });

TEST_P(AttentionOf, agrees_with_the_oracle_on_every_instruction_set) {
  Random random(21);
  WorstElement worst;
  for (const Heads& heads : head_shapes()) {
    for (const uint32_t length : {1U, 17U, 63U, 64U, 65U, 200U}) {
      const Sequence sequence = random_sequence(heads, length, random);
      std::vector<float> first;
      for (const std::string& set : sets()) {
        const auto on = make_host_device(spec(2, set));
        const std::vector<float> found =
            run_in_chunks(*on, type(), sequence, length, pages_in_order());
        if (first.empty()) {
          first = found;
          const WorstElement here =
              compare_with_oracle(type(), sequence, found, is_cuda() ? kHalfRounding : 0.0);
          ASSERT_LE(here.ratio(), 1.0)
              << heads.n_heads << "/" << heads.n_kv_heads << " heads of " << heads.head_dim << ", "
              << length << " tokens: " << here.text();
          if (here.ratio() > worst.ratio()) worst = here;
        } else {
          ASSERT_TRUE(same_bits(first, found))
              << set << ", " << heads.n_heads << " heads of " << heads.head_dim << ", " << length;
        }
      }
    }
  }
  std::cout << name_of(type()) << ", worst " << worst.text() << '\n';
}

TEST_P(AttentionOf, chunks_pages_and_threads_change_no_bit) {
  Random random(22);
  for (const Heads& heads : {Heads{9, 3, 64}, Heads{4, 2, 40}}) {
    const Sequence sequence = random_sequence(heads, 150, random);
    const auto on = device();
    const auto expected = run_in_chunks(*on, type(), sequence, 150, pages_in_order());
    for (const uint32_t chunk : {1U, 2U, 3U, 7U, 17U, 64U, 65U, 149U}) {
      EXPECT_TRUE(
          same_bits(expected, run_in_chunks(*on, type(), sequence, chunk, pages_backwards())))
          << chunk;
    }
    for (const uint32_t n_threads : {1U, 3U}) {
      const auto other = make_host_device(spec(n_threads));
      EXPECT_TRUE(
          same_bits(expected, run_in_chunks(*other, type(), sequence, 150, pages_in_order())));
    }
  }
}

// As run_in_chunks(), by way of the linear operator's input: its output with the matrix that
// changes nothing. `at_once`: attention writes the input itself.
std::vector<float>
run_as_input(Device& on, KvType type, const Sequence& sequence, uint32_t chunk, bool at_once) {
  const Heads& heads = sequence.heads;
  const uint32_t n_cols = sequence.q_floats();
  // Before anything is written the input holds no number, up to the end of its last chunk.
  const uint32_t padded_cols = (n_cols + 63) / 64 * 64;
  on.reserve(chunk, padded_cols);
  const std::vector<float> nothing(size_t{chunk} * padded_cols, NAN);
  on.set_input(nothing.data(), chunk, padded_cols);

  std::vector<std::byte> identity(quant_bytes(QuantType::f16, n_cols) * n_cols);
  for (size_t i = 0; i < n_cols; ++i)
    put_half(identity.data() + 2 * i * (n_cols + 1), 1.0F);
  const Pages pages(on, {type, heads.n_kv_heads, heads.head_dim}, 64);
  const std::vector<uint32_t> page_table = pages_backwards();
  const std::span<const uint32_t> table(page_table);
  std::vector<float> attended(size_t{chunk} * n_cols);
  std::vector<float> out(sequence.q.size(), NAN);
  for (uint32_t first = 0; first < sequence.length; first += chunk) {
    const uint32_t n = std::min(chunk, sequence.length - first);
    std::vector<uint32_t> positions(n);
    std::iota(positions.begin(), positions.end(), first);
    const std::vector<uint32_t> sequences(n, 0);
    const size_t kv_from = size_t{first} * sequence.kv_floats();
    const float* const q = sequence.q.data() + size_t{first} * n_cols;
    on.begin_step({positions, sequences, {&table, 1}});
    on.store_kv(pages.layer(), sequence.k.data() + kv_from, sequence.v.data() + kv_from);
    if (at_once) {
      on.attention_input(pages.layer(), q, n, heads.n_heads, scale_of(heads), attended.data());
    } else {
      on.attention(pages.layer(), q, heads.n_heads, scale_of(heads), attended.data());
      on.set_input(attended.data(), n, n_cols);
    }
    LinearPart part;
    part.weight = {QuantType::f16, WeightLayout::file, n_cols, n_cols, identity.data()};
    part.out = out.data() + size_t{first} * n_cols;
    part.out_stride = n_cols;
    on.linear({&part, 1});
  }
  return out;
}

TEST_P(AttentionOf, as_an_input_it_has_the_bits_of_its_parts) {
  Random random(26);
  for (const Heads& heads :
       {Heads{9, 3, 64}, Heads{4, 1, 128}, Heads{3, 1, 40}, Heads{6, 2, 20}, Heads{2, 1, 256},
        Heads{5, 5, 16}, Heads{3, 1, 15}}) {
    const Sequence sequence = random_sequence(heads, 130, random);
    const auto on = device();
    const auto expected = run_in_chunks(*on, type(), sequence, 130, pages_in_order());
    // Of each order of the input, and more rows than a tile of it.
    for (const uint32_t chunk : {9U, 16U, 33U, 64U, 130U}) {
      const auto found = run_as_input(*on, type(), sequence, chunk, true);
      EXPECT_TRUE(same_bits(found, run_as_input(*on, type(), sequence, chunk, false)))
          << heads.n_heads << " heads of " << heads.head_dim << ", " << chunk;
      if (is_cuda()) {
        EXPECT_EQ(found, expected)
            << heads.n_heads << " heads of " << heads.head_dim << ", " << chunk;
      }
    }
  }
}

TEST_P(AttentionOf, as_an_input_what_is_no_number_stays_none) {
  Random random(27);
  const Heads heads{3, 1, 32};
  const auto on = device();
  Sequence sequence = random_sequence(heads, 40, random);
  const auto expected = run_as_input(*on, type(), sequence, 40, true);
  sequence.k[20 * 32 + 7] = NAN;
  for (const uint32_t chunk : {8U, 40U}) {
    const auto found = run_as_input(*on, type(), sequence, chunk, true);
    EXPECT_TRUE(same_bits(rows_of(expected, 0, 20, 96), rows_of(found, 0, 20, 96)));
    for (size_t i = 20 * 96; i < found.size(); ++i)
      ASSERT_FALSE(std::isfinite(found[i])) << i;
  }
}

// A mean of the largest halves is one of them, however its weights are rounded.
TEST_P(AttentionOf, as_an_input_the_largest_values_stay_finite) {
  Random random(28);
  const Heads heads{2, 1, 64};
  const auto on = device();
  Sequence sequence = random_sequence(heads, 100, random);
  // Of q8_0 127 times the largest scale that does not leave half precision.
  const float largest = type() == KvType::q8_0 ? 127 * 512.0F : 65504.0F;
  for (size_t i = 0; i < sequence.v.size(); ++i)
    sequence.v[i] = i % 64 < 32 ? largest : -largest;
  for (const float value : run_as_input(*on, type(), sequence, 100, true))
    ASSERT_NEAR(std::fabs(value), largest, largest * 0x1p-6F);
}

TEST_P(AttentionOf, neighbours_in_a_step_change_no_bit) {
  Random random(23);
  const Heads heads{6, 2, 64};
  const auto on = device();
  // Three sequences of different length, stored before; one step holds a decode row of the first,
  // a chunk of the second and a decode row of the third.
  std::vector<Sequence> sequences;
  for (const uint32_t length : {70U, 140U, 5U}) {
    sequences.push_back(random_sequence(heads, length, random));
  }
  std::vector<std::vector<float>> alone;
  for (const Sequence& sequence : sequences) {
    alone.push_back(run_in_chunks(*on, type(), sequence, sequence.length, pages_in_order()));
  }
  const Pages pages(*on, {type(), heads.n_kv_heads, heads.head_dim}, 16);
  const std::vector<std::vector<uint32_t>> tables = {{5, 2}, {7, 0, 3}, {4}};
  const std::vector<std::span<const uint32_t>> spans(tables.begin(), tables.end());
  for (uint32_t s = 0; s < 3; ++s) {
    std::vector<uint32_t> positions(sequences[s].length);
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<uint32_t> owners(positions.size(), s);
    on->begin_step({positions, owners, spans});
    on->store_kv(pages.layer(), sequences[s].k.data(), sequences[s].v.data());
  }
  std::vector<uint32_t> positions = {69};
  std::vector<uint32_t> owners = {0};
  for (uint32_t position = 100; position < 140; ++position) {
    positions.push_back(position);
    owners.push_back(1);
  }
  positions.push_back(4);
  owners.push_back(2);
  std::vector<float> q;
  std::vector<float> expected;
  const uint32_t row_floats = heads.n_heads * heads.head_dim;
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto row = rows_of(sequences[owners[i]].q, positions[i], 1, row_floats);
    q.insert(q.end(), row.begin(), row.end());
    const auto result = rows_of(alone[owners[i]], positions[i], 1, row_floats);
    expected.insert(expected.end(), result.begin(), result.end());
  }
  std::vector<float> out(q.size());
  on->begin_step({positions, owners, spans});
  on->attention(pages.layer(), q.data(), heads.n_heads, scale_of(heads), out.data());
  EXPECT_TRUE(same_bits(expected, out));
}

TEST_P(AttentionOf, later_tokens_of_a_chunk_cannot_reach_earlier_rows) {
  Random random(24);
  const Heads heads{3, 1, 32};
  const auto on = device();
  const Sequence sound = random_sequence(heads, 40, random);
  const auto expected = run_in_chunks(*on, type(), sound, 40, pages_in_order());
  for (const bool in_values : {false, true}) {
    for (const float wrong : {NAN, HUGE_VALF}) {
      Sequence sequence = sound;
      for (uint32_t d = 0; d < 32; ++d)
        (in_values ? sequence.v : sequence.k)[20 * 32 + d] = wrong;
      const auto found = run_in_chunks(*on, type(), sequence, 40, pages_in_order());
      EXPECT_TRUE(same_bits(rows_of(expected, 0, 20, 96), rows_of(found, 0, 20, 96)));
      EXPECT_FALSE(std::isfinite(found[20 * 96]));
    }
  }
}

// Several splits of a GPU's chain, in every way that a step may cut them.
// One sequence goes on from the first tokens of another's page, in a copy of it. The tokens behind
// them, of which one is not finite, and those that the source gets later are not seen.
TEST_P(AttentionOf, a_copied_page_gives_the_bits_of_a_computed_one) {
  constexpr uint32_t kEqual = 21;
  constexpr uint32_t kLength = 60;
  Random random(26);
  for (const Heads& heads : {Heads{4, 2, 64}, Heads{3, 1, 80}}) {
    const auto on = device();
    const Pages pages(*on, {type(), heads.n_kv_heads, heads.head_dim}, 4);
    const auto run = [&](const Sequence& sequence, uint32_t page, uint32_t from, uint32_t to) {
      std::vector<uint32_t> positions(to - from);
      std::iota(positions.begin(), positions.end(), from);
      const std::vector<uint32_t> sequences(positions.size(), 0);
      const std::span<const uint32_t> table(&page, 1);
      std::vector<float> out(positions.size() * sequence.q_floats(), NAN);
      const size_t kv_from = size_t{from} * sequence.kv_floats();
      on->begin_step({positions, sequences, {&table, 1}});
      on->store_kv(pages.layer(), sequence.k.data() + kv_from, sequence.v.data() + kv_from);
      on->attention(
          pages.layer(), sequence.q.data() + size_t{from} * sequence.q_floats(), heads.n_heads,
          scale_of(heads), out.data());
      return out;
    };
    Sequence source = random_sequence(heads, kLength, random);
    source.v[size_t{kEqual} * source.kv_floats()] = NAN;
    Sequence other = random_sequence(heads, kLength, random);
    std::copy_n(source.k.begin(), size_t{kEqual} * source.kv_floats(), other.k.begin());
    std::copy_n(source.v.begin(), size_t{kEqual} * source.kv_floats(), other.v.begin());
    run(other, 3, 0, kEqual);
    const std::vector<float> expected = run(other, 3, kEqual, kLength);

    run(source, 1, 0, 40);
    const KvPageCopy copy{.from = 1, .to = 2};
    on->copy_kv_pages(pages.layer(), 1, 0, {&copy, 1});
    run(source, 1, 40, kLength);
    EXPECT_TRUE(same_bits(expected, run(other, 2, kEqual, kLength))) << heads.head_dim;
  }
}

// More copies than a GPU takes at once; pages that are no whole number of a block's pieces.
TEST_P(AttentionOf, pages_are_copied_in_all_layers_and_nothing_else_is_written) {
  constexpr uint32_t kLayers = 3;
  constexpr uint32_t kCopies = 300;
  constexpr uint32_t kPages = 2 * kCopies + 1;
  const auto on = device();
  for (const uint32_t head_dim : {32U, 48U}) {
    const KvShape shape{type(), 1, head_dim};
    const size_t page_bytes = on->kv_page_bytes(shape);
    const auto memory = on->allocate(page_bytes * kPages * kLayers);
    std::vector<std::byte> expected(memory->size_bytes());
    Random random(27);
    for (std::byte& byte : expected)
      byte = static_cast<std::byte>(random.bits());
    std::memcpy(memory->data(), expected.data(), expected.size());
    std::vector<uint32_t> pages(kPages);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
    std::vector<KvPageCopy> copies;
    for (uint32_t i = 0; i < kCopies; ++i) {
      copies.push_back({.from = pages[i], .to = pages[kCopies + i]});
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        std::byte* const first = expected.data() + page_bytes * kPages * layer;
        std::memcpy(
            first + page_bytes * copies[i].to, first + page_bytes * copies[i].from, page_bytes);
      }
    }
    on->copy_kv_pages({shape, memory->data(), page_bytes}, kLayers, page_bytes * kPages, copies);
    EXPECT_EQ(std::memcmp(memory->data(), expected.data(), expected.size()), 0) << head_dim;
  }
}

TEST_P(AttentionOf, a_long_context_gives_the_same_bits_in_any_chunks) {
  Random random(25);
  for (const Heads& heads : {Heads{8, 1, 32}, Heads{2, 2, 80}}) {
    const Sequence sequence = random_sequence(heads, 700, random);
    const auto on = device();
    const auto expected = run_in_chunks(*on, type(), sequence, 700, pages_in_order());
    const WorstElement worst =
        compare_with_oracle(type(), sequence, expected, is_cuda() ? kHalfRounding : 0.0);
    EXPECT_LE(worst.ratio(), 1.0) << worst.text();
    for (const uint32_t chunk : {1U, 2U, 8U, 16U, 63U, 128U, 257U, 512U}) {
      if (chunk < 16 && heads.n_kv_heads == 2 && !is_cuda()) continue;  // slow, nothing new
      EXPECT_TRUE(
          same_bits(expected, run_in_chunks(*on, type(), sequence, chunk, pages_backwards())))
          << chunk;
    }
  }
}

}  // namespace
}  // namespace nightsweep
