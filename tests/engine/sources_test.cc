// Where weights come from changes no bit, and what a source cannot do is said.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "engine_fixture.h"
#include "support/detached_device.h"
#include "support/expect_error.h"

namespace nightsweep {
namespace {

// For the ring and a part of the weights.
constexpr uint64_t kLittleRam = 2 << 20;

class Sources : public testing::Test {
 protected:
  Sources() {
    write_tiny_llama(
        path_, {.n_layers = 4, .dim = 256, .ff_dim = 512, .type = QuantType::q8_0, .seed = 5});
  }

  static EngineOptions options(const std::string& source) {
    return {.ram_bytes = 64 << 20, .max_sequences = 4, .source = source, .max_rows = 16};
  }
  std::unique_ptr<Engine> open(const EngineOptions& options) {
    return Engine::open(
        open_gguf(path_),
        std::make_unique<DetachedDevice>(make_cpu_device({.n_threads = 1}), link_), options);
  }
  static std::vector<SequenceRequest> requests() {
    std::vector<SequenceRequest> all(6);
    for (uint32_t i = 0; i < all.size(); ++i) {
      all[i].prompt = random_tokens(5 + 7 * i, 320, i);
      all[i].sampling.temperature = i % 2 == 0 ? 0 : 1;
      all[i].sampling.seed = i;
      all[i].max_tokens = 20;
    }
    return all;
  }
  // Answers, and the logits of some positions, bit by bit.
  static std::string bits_of(Engine& engine) {
    std::string bits;
    for (const SequenceResult& result : run_all(engine, requests())) {
      EXPECT_EQ(result.error, "");
      for (uint32_t token : result.tokens)
        bits += std::to_string(token) + " ";
    }
    const std::vector<float> logits = all_logits(engine, random_tokens(40, 320, 9));
    bits.append(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
    return bits;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path("tiny.gguf");
  std::shared_ptr<LinkState> link_ = std::make_shared<LinkState>();
};

TEST_F(Sources, every_source_and_budget_gives_the_bits_of_the_resident_model) {
  const std::string expected = bits_of(*open(options("auto")));
  for (const char* source : {"auto", "pinned", "registered", "direct", "mmap"}) {
    for (const uint64_t resident : {0ULL, 1500ULL << 10}) {
      for (const uint64_t ram : {kLittleRam, uint64_t{64} << 20}) {
        if (ram == kLittleRam && resident > 0) continue;
        SCOPED_TRACE(format("{}, {} resident, {} of RAM", source, resident, ram));
        EngineOptions streamed = options(source);
        streamed.most_resident_bytes = resident;
        streamed.ram_bytes = ram;
        std::unique_ptr<Engine> engine;
        try {
          engine = open(streamed);
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::device);
          const std::string name = source;
          if (name == "direct") {
            std::printf("SKIPPED for direct, which this file system refuses: %s\n", error.what());
          } else {
            EXPECT_EQ(ram, kLittleRam) << error.what();
            EXPECT_TRUE(name == "pinned" || name == "registered") << error.what();
          }
          continue;
        }
        EXPECT_EQ(bits_of(*engine), expected);
        const StreamStats stats = engine->stats().stream;
        EXPECT_GT(stats.copied_bytes, 0U);
        EXPECT_LE(stats.resident_bytes, resident);
        EXPECT_EQ(link_->n_bad_copies, 0U);
        const std::string name = source;
        EXPECT_EQ(stats.registered_bytes > 0, stats.source == "registered page cache");
        if (name == "registered") {
          EXPECT_GT(stats.registered_bytes, 0U);
          EXPECT_GE(link_->registered_bytes, stats.registered_bytes);  // whole pages
          EXPECT_EQ(stats.streamed_bytes + stats.filled_bytes, 0U);
        } else if (name == "pinned") {
          EXPECT_GT(stats.host_bytes, 0U);
          EXPECT_EQ(stats.streamed_bytes, 0U);
        } else if (name == "direct" || name == "mmap") {
          EXPECT_EQ(stats.host_bytes, 0U);
          EXPECT_GT(stats.streamed_bytes, 0U);
        }
        EXPECT_EQ(name == "mmap", stats.source == "mmap");
      }
    }
    EXPECT_EQ(link_->registered_bytes, 0U) << "unlocked at the end";
  }
}

TEST_F(Sources, the_cpu_device_reads_directly_or_from_a_mapping_with_the_same_bits) {
  const auto open_cpu = [&](const std::string& source, uint64_t ram_bytes) {
    EngineOptions cpu = options(source);
    cpu.ram_bytes = ram_bytes;
    return Engine::open(open_gguf(path_), make_cpu_device({.n_threads = 1}), cpu);
  };
  const std::string expected = bits_of(*open_cpu("auto", 64 << 20));
  bool has_streamed = false;
  for (const char* source : {"auto", "direct", "mmap"}) {
    for (uint64_t ram : {2ULL << 20, 3ULL << 20, 64ULL << 20}) {
      try {
        const auto engine = open_cpu(source, ram);
        EXPECT_EQ(bits_of(*engine), expected) << source << " " << ram;
        has_streamed |= engine->stats().stream.streamed_bytes > 0;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::device) << error.what();
      }
    }
  }
  EXPECT_TRUE(has_streamed);
  EXPECT_ERROR(ErrorKind::usage, open_cpu("pinned", 64 << 20), "--source pinned");
}

TEST_F(Sources, auto_takes_the_page_cache_where_it_has_the_model_and_ram_holds_it) {
  EngineOptions streamed = options("auto");
  streamed.most_resident_bytes = 0;
  // Reading it puts it there, but on file systems that cannot tell.
  std::ifstream(path_).ignore(std::numeric_limits<std::streamsize>::max());
  const auto engine = open(streamed);
  bits_of(*engine);
  const StreamStats stats = engine->stats().stream;
  if (stats.registered_bytes == 0) {
    EXPECT_NE(stats.source_reason.find("page cache has"), std::string::npos) << stats.source_reason;
  } else {
    EXPECT_EQ(stats.source_reason, "the page cache has the model and --ram holds it");
  }

  streamed.ram_bytes = kLittleRam;
  const auto small = open(streamed);
  bits_of(*small);
  EXPECT_EQ(small->stats().stream.registered_bytes, 0U);
  EXPECT_NE(small->stats().stream.source_reason.find("of --ram"), std::string::npos)
      << small->stats().stream.source_reason;
}

TEST_F(Sources, a_forced_source_that_does_not_work_is_an_error_and_no_change) {
  EngineOptions streamed = options("registered");
  streamed.most_resident_bytes = 0;
  link_->can_register = false;
  EXPECT_ERROR(ErrorKind::device, open(streamed), "--source registered");
  EXPECT_ERROR(ErrorKind::device, open(streamed), "refused by the test");
  streamed.source = "auto";
  EXPECT_NO_THROW(bits_of(*open(streamed)));
  link_->can_register = true;
  streamed.source = "registered";
  streamed.ram_bytes = kLittleRam;
  EXPECT_ERROR(ErrorKind::device, open(streamed), "of --ram");
  streamed.source = "pinned";
  EXPECT_ERROR(ErrorKind::device, open(streamed), "--source pinned");
}

TEST_F(Sources, a_file_that_changes_under_a_locked_mapping_ends_the_step_that_read_it) {
  for (const char* source : {"registered", "pinned", "direct"}) {
    EngineOptions streamed = options(source);
    streamed.most_resident_bytes = 0;
    std::unique_ptr<Engine> engine;
    try {
      engine = open(streamed);
    } catch (const Error& error) {
      std::printf("SKIPPED for %s: %s\n", source, error.what());
      continue;
    }
    for (SequenceRequest& request : requests())
      engine->submit(std::move(request));
    engine->step();
    const auto time = std::filesystem::last_write_time(path_);
    std::filesystem::last_write_time(path_, time + std::chrono::seconds(1));
    EXPECT_ERROR(ErrorKind::model, engine->step(), "tiny.gguf");
    std::filesystem::last_write_time(path_, time);
  }
}

TEST_F(Sources, a_device_lost_in_the_middle_of_a_sweep_ends_the_step) {
  for (const char* source : {"registered", "pinned"}) {
    EngineOptions streamed = options(source);
    streamed.most_resident_bytes = 0;
    link_->n_copies_before_loss = UINT64_MAX;
    const auto engine = open(streamed);
    for (SequenceRequest& request : requests())
      engine->submit(std::move(request));
    engine->step();
    link_->n_copies_before_loss = 30;
    const auto run_on = [&] {
      for (int i = 0; i < 1000; ++i)
        engine->step();
    };
    EXPECT_ERROR(ErrorKind::device, run_on(), "lost by the test");
  }
}

}  // namespace
}  // namespace nightsweep
