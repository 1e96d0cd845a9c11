// The corpus of the fuzzer and systematic mutations of sound heads: each ends with Error(model) or
// success, with memory in proportion to its size. Runs with any compiler.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "fuzz/allocation_peak.h"
#include "fuzz/gguf_seeds.h"
#include "fuzz/gguf_target.h"
#include "support/cases.h"

namespace nightsweep {
namespace {

// The worst honest case is a byte array, widened eightfold; around it stand messages and indexes.
constexpr size_t kBytesPerByte = 32;
constexpr size_t kFixedBytes = 64 << 10;

// Of the seeds, those whose mutations say something that those of others do not.
std::vector<std::pair<std::string, std::string>> seeds_to_mutate() {
  std::vector<std::pair<std::string, std::string>> seeds = gguf_seeds();
  std::erase_if(seeds, [](const auto& seed) {
    return seed.first == "version_2" || seed.first == "llama_fused" || seed.first == "llama_linear";
  });
  return seeds;
}

bool try_within_memory(const std::string& bytes) {
  reset_allocation_peak();
  bool is_sound = try_gguf(std::as_bytes(std::span(bytes)));
  EXPECT_LE(allocation_peak_bytes(), kFixedBytes + kBytesPerByte * bytes.size())
      << "for " << bytes.size() << " bytes";
  return is_sound;
}

TEST(GgufReplay, seeds_are_what_they_claim) {
  for (const auto& [name, bytes] : gguf_seeds()) {
    bool expected = name == "llama" || name == "llama_linear";
    EXPECT_EQ(try_within_memory(bytes), expected) << name;
  }
}

TEST(GgufReplay, corpus_is_parsed_or_refused) {
  size_t n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NIGHTSWEEP_FUZZ_CORPUS "/gguf")) {
    SCOPED_TRACE(entry.path());
    try_within_memory(read_whole_file(entry.path(), ErrorKind::input));
    ++n_files;
  }
  EXPECT_GE(n_files, gguf_seeds().size());
}

TEST(GgufReplay, shared_malformed_files_take_memory_by_their_size) {
  NEEDS_CASES("gguf-malformed");
  size_t n_files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(cases_folder() + "/gguf-malformed")) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path());
    try_within_memory(read_whole_file(entry.path(), ErrorKind::input));
    ++n_files;
  }
  EXPECT_EQ(n_files, 42U);
}

TEST(GgufReplay, every_truncation_is_refused) {
  for (const auto& [name, bytes] : gguf_seeds()) {
    SCOPED_TRACE(name);
    for (size_t n = 0; n < bytes.size(); ++n)
      try_within_memory(bytes.substr(0, n));
  }
}

TEST(GgufReplay, every_changed_byte_is_survived) {
  for (const auto& [name, bytes] : seeds_to_mutate()) {
    SCOPED_TRACE(name);
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string changed = bytes;
      for (int value : {0x00, 0x01, 0x7f, 0x80, 0xff, bytes[i] ^ 1, bytes[i] + 1}) {
        changed[i] = static_cast<char>(value);
        try_within_memory(changed);
      }
    }
  }
}

// Lengths and counts are 8 bytes wide; this sets each of them, and all else, to what overflows.
TEST(GgufReplay, every_extreme_number_is_survived) {
  constexpr uint64_t kNumbers[] = {
      0,          ~0ULL,      1ULL << 63, (1ULL << 63) - 1,      1ULL << 62,
      1ULL << 61, 1ULL << 32, 1ULL << 31, 0x0000000100000001ULL, ~31ULL};
  for (const auto& [name, bytes] : seeds_to_mutate()) {
    SCOPED_TRACE(name);
    for (size_t i = 0; i + 8 <= bytes.size(); ++i) {
      for (uint64_t number : kNumbers) {
        std::string changed = bytes;
        std::memcpy(changed.data() + i, &number, sizeof number);
        try_within_memory(changed);
      }
    }
  }
}

// The counter itself: an allocation that is out of proportion is seen.
TEST(GgufReplay, an_allocation_out_of_proportion_is_seen) {
  reset_allocation_peak();
  { std::string large(1 << 20, 'x'); }
  EXPECT_GE(allocation_peak_bytes(), size_t{1} << 20);
}

}  // namespace
}  // namespace nightsweep
