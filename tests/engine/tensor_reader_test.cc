#include "engine/tensor_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/gguf_writer.h"
#include "support/scripted_reader.h"
#include "support/temporary_folder.h"

namespace nightsweep {
namespace {

class TensorReaderTest : public testing::Test {
 protected:
  TensorReaderTest() {
    GgufWriter writer;
    writer.set_string("general.architecture", "none");
    add(writer, "small", {3}, QuantType::f32);
    add(writer, "embedding", {288, 1200}, QuantType::q8_0);  // rows of 306 bytes
    add(writer, "wide", {40'000, 9}, QuantType::f32);        // rows larger than a read
    add(writer, "last", {5, 7}, QuantType::f32);             // ends with the file
    model_ = std::make_unique<GgufModel>(
        GgufModel::open(writer.write_split(folder_.path("model"), 2).front()));
  }

  void add(
      GgufWriter& writer,
      const std::string& name,
      const std::vector<uint64_t>& dims,
      QuantType type) {
    uint64_t n_elems = 1;
    for (uint64_t dim : dims)
      n_elems *= dim;
    std::string data(quant_bytes(type, n_elems), '\0');
    for (char& c : data)
      c = static_cast<char>(random_());
    writer.set_tensor(name, dims, static_cast<uint32_t>(type), data);
    data_[name] = std::move(data);
  }

  void expect_rows(TensorReader& reader, const std::string& name, std::span<const uint32_t> ids) {
    const GgufTensor& tensor = *model_->find_tensor(name);
    const uint64_t row_bytes = tensor.size_bytes / tensor.dims[1];
    std::string expected;
    for (uint32_t id : ids)
      expected += data_[name].substr(id * row_bytes, row_bytes);
    std::string found(expected.size(), '\0');
    reader.read_rows(tensor, ids, reinterpret_cast<std::byte*>(found.data()));
    EXPECT_TRUE(found == expected) << name << ", " << ids.size() << " rows";
  }

  void expect_reads_everything(TensorReader& reader, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const auto& [name, data] : data_) {
      const GgufTensor& tensor = *model_->find_tensor(name);
      const uint64_t offset = random() % data.size();
      const uint64_t size_bytes = 1 + random() % (data.size() - offset);
      std::string part(size_bytes, '\0');
      reader.read(tensor, offset, size_bytes, reinterpret_cast<std::byte*>(part.data()));
      EXPECT_TRUE(part == data.substr(offset, size_bytes)) << name;
      std::string whole(data.size(), '\0');
      reader.read(tensor, 0, data.size(), reinterpret_cast<std::byte*>(whole.data()));
      EXPECT_TRUE(whole == data) << name;
    }
    std::vector<uint32_t> ids(1 + random() % 512);
    for (uint32_t& id : ids)
      id = static_cast<uint32_t>(random() % 1200);
    expect_rows(reader, "embedding", ids);
    for (uint32_t& id : ids)
      id = 700 + id % 8;  // neighbours, many times
    expect_rows(reader, "embedding", ids);
    expect_rows(reader, "wide", std::vector<uint32_t>{8, 0, 3, 3, 8});
    expect_rows(reader, "last", std::vector<uint32_t>{6});
    expect_rows(reader, "last", {});
  }

  TemporaryFolder folder_;
  std::mt19937_64 random_{3};
  std::map<std::string, std::string> data_;
  std::unique_ptr<GgufModel> model_;
};

TEST_F(TensorReaderTest, gives_the_bytes_of_rows_and_ranges_from_each_source) {
  for (const char* source : {"auto", "pread"}) {
    TensorReader reader(*model_, source);
    for (uint64_t seed = 1; seed <= 5; ++seed)
      expect_reads_everything(reader, seed);
  }
}

TEST_F(TensorReaderTest, gives_the_same_bytes_whatever_the_reader_does) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    TensorReader reader(
        *model_, "auto",
        scripted({.seed = seed, .alignment = seed % 2 == 0 ? kDirectAlignment : 1}));
    expect_reads_everything(reader, seed);
  }
}

// Counts the reads that arrive.
class CountingReader final : public FileReader {
 public:
  CountingReader(const FileReaderOptions& options, uint64_t& n_reads)
      : FileReader(FileSet::open(options.paths, options.file_bytes, 0), "counting", 4096, 32),
        n_reads_(n_reads) {}
  void submit(const FileRead& read) override {
    ++n_reads_;
    const ssize_t n =
        ::pread(files_.fd(read.file), read.into, read.size_bytes, static_cast<off_t>(read.offset));
    ended_.push_back({read.tag, n});
  }
  void wait(std::vector<FileReadEnd>& ended) override { ended.swap(ended_); }

 private:
  uint64_t& n_reads_;
  std::vector<FileReadEnd> ended_;
};

TEST_F(TensorReaderTest, neighbouring_and_equal_rows_are_one_read) {
  uint64_t n_reads = 0;
  TensorReader reader(*model_, "auto", [&](const FileReaderOptions& options) {
    return std::make_unique<CountingReader>(options, n_reads);
  });
  expect_rows(reader, "embedding", std::vector<uint32_t>(400, 17));
  EXPECT_EQ(n_reads, 1U);
  n_reads = 0;
  expect_rows(reader, "embedding", std::vector<uint32_t>{20, 19, 21, 18, 20, 22});
  EXPECT_EQ(n_reads, 1U);
  n_reads = 0;
  expect_rows(reader, "embedding", std::vector<uint32_t>{1000, 10, 500});
  EXPECT_EQ(n_reads, 3U);
}

TEST_F(TensorReaderTest, goes_on_after_an_error) {
  const GgufTensor& tensor = *model_->find_tensor("embedding");
  TensorReader reader(
      *model_, "auto",
      scripted(
          {.is_short = false,
           .has_failure = true,
           .failure_file = tensor.file,
           .failure_offset = tensor.offset + 100'000,
           .failure_result = -EIO}));
  std::string whole(tensor.size_bytes, '\0');
  try {
    reader.read(tensor, 0, whole.size(), reinterpret_cast<std::byte*>(whole.data()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::storage);
  }
  expect_rows(reader, "embedding", std::vector<uint32_t>{0, 1199});
}

TEST_F(TensorReaderTest, what_lies_outside_the_tensor_is_refused) {
  TensorReader reader(*model_);
  std::byte out{};
  const GgufTensor& tensor = *model_->find_tensor("embedding");
  EXPECT_THROW(reader.read_rows(tensor, std::vector<uint32_t>{1200}, &out), Error);
  EXPECT_THROW(reader.read(tensor, tensor.size_bytes, 1, &out), Error);
  EXPECT_THROW(reader.read(tensor, 1, UINT64_MAX, &out), Error);
}

TEST_F(TensorReaderTest, a_file_that_was_written_to_is_noticed_behind_its_reads) {
  TensorReader reader(*model_);
  reader.check_files();
  const std::string path = model_->paths().back();
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) + std::chrono::seconds(3));
  EXPECT_MODEL_ERROR(reader.check_files(), path);
}

}  // namespace
}  // namespace nightsweep
