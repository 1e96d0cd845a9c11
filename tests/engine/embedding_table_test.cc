// Rows of the embedding are those of the file, wherever they are kept.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "engine/model.h"
#include "support/detached_device.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace nightsweep {
namespace {

class EmbeddingTables : public testing::Test {
 protected:
  EmbeddingTables() {
    write_tiny_llama(path_, {.type = QuantType::q8_0});
    gguf_ = std::make_unique<GgufModel>(GgufModel::open(path_));
    tensor_ = gguf_->find_tensor("token_embd.weight");
  }

  std::unique_ptr<Device> device(bool is_detached) const {
    std::unique_ptr<Device> cpu = make_cpu_device({.n_threads = 1});
    if (!is_detached) return cpu;
    return std::make_unique<DetachedDevice>(std::move(cpu), std::make_shared<LinkState>());
  }
  // Steps that name a row again, in the same and in another.
  std::vector<float> lookup(EmbeddingTable& table) const {
    const std::vector<uint32_t> steps[] = {{5, 319, 5, 0}, {7}, {0, 5, 200, 8, 7, 319}};
    const size_t dim = tensor_->dims[0];
    std::vector<float> found;
    for (const std::vector<uint32_t>& ids : steps) {
      std::vector<float> rows(ids.size() * dim);
      table.lookup(ids, rows.data());
      found.insert(found.end(), rows.begin(), rows.end());
    }
    return found;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path("model.gguf");
  std::unique_ptr<GgufModel> gguf_;
  const GgufTensor* tensor_ = nullptr;
};

TEST_F(EmbeddingTables, give_the_rows_of_the_file_wherever_they_are_kept) {
  std::vector<float> expected;
  for (const bool is_detached : {false, true}) {
    for (const bool is_resident : {true, false}) {
      for (const bool is_in_host : {false, true}) {
        const auto on = device(is_detached);
        TensorReader reader(*gguf_);
        EmbeddingTable table(
            *tensor_, reader, *on,
            {.limits = {.max_rows = 6, .max_logit_rows = 1},
             .embedding_resident = is_resident,
             .embedding_in_host = is_in_host});
        const bool is_read_once = is_resident || (is_detached && is_in_host);
        EXPECT_EQ(table.reads_file(), !is_read_once);
        // What has been read needs no file any more.
        if (is_read_once) std::filesystem::resize_file(path_, 100);
        const std::vector<float> found = lookup(table);
        if (is_read_once) {
          write_tiny_llama(path_, {.type = QuantType::q8_0});
          gguf_ = std::make_unique<GgufModel>(GgufModel::open(path_));
          tensor_ = gguf_->find_tensor("token_embd.weight");
        }
        if (expected.empty()) expected = found;
        ASSERT_EQ(found.size(), expected.size());
        EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
            << is_detached << is_resident << is_in_host;
      }
    }
  }
}

}  // namespace
}  // namespace nightsweep
