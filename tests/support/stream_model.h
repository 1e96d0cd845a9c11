// A model of random bytes in awkward shapes, its plan, and what the bytes must be: for tests of
// what moves weights. Computes nothing.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/gguf.h"
#include "engine/weights.h"
#include "support/gguf_writer.h"

namespace nightsweep {

struct StreamModelOptions {
  uint32_t n_layers = 4;
  uint32_t n_files = 1;
  uint32_t alignment = 32;
  uint64_t max_slice_bytes = 40'000;
  uint64_t seed = 1;
};

class StreamModel {
 public:
  // `path`: of the file, or the prefix of a split set.
  StreamModel(const std::string& path, const StreamModelOptions& options) : random_(options.seed) {
    writer_.set_alignment(options.alignment);
    writer_.set_string("general.architecture", "none");
    for (uint32_t layer = 0; layer < options.n_layers; ++layer) {
      const std::string prefix = "blk." + std::to_string(layer) + ".";
      add(prefix + "norm", QuantType::f32, 17, 1);
      add_group_of(
          {{prefix + "q", QuantType::q4_k, 256, 200},
           {prefix + "k", QuantType::q4_k, 256, 40},
           {prefix + "v", QuantType::q6_k, 256, 40}});
      add_group_of({{prefix + "o", QuantType::q5_1, 224, 250}});
      add_group_of(
          {{prefix + "gate", QuantType::q8_0, 256, 301},
           {prefix + "up", QuantType::f16, 256, 301}});
      add_group_of({{prefix + "down", QuantType::q4_0, 320, 256}});
    }
    add_group_of({{"output", QuantType::f32, 96, 333}});
    std::string first = path;
    if (options.n_files > 1) {
      first = writer_.write_split(path, options.n_files).front();
    } else {
      writer_.write(path);
    }
    model_ = std::make_unique<GgufModel>(GgufModel::open(first));
    std::vector<WeightGroup> cut;
    for (const std::vector<std::string>& names : groups_) {
      std::vector<const GgufTensor*> tensors;
      for (const std::string& name : names)
        tensors.push_back(model_->find_tensor(name));
      cut.push_back(add_group(plan_, tensors, options.max_slice_bytes));
    }
    for (size_t i = 0; i + 1 < cut.size(); i += 2)
      add_window(plan_, {&cut[i], &cut[i + 1]});
  }

  const GgufModel& model() const { return *model_; }
  const WeightPlan& plan() const { return plan_; }
  const std::string& data(const std::string& tensor) const { return data_.at(tensor); }
  std::string_view data(const WeightExtent& extent) const {
    return std::string_view(data(extent.tensor->name))
        .substr(extent.offset - extent.tensor->offset, extent.size_bytes);
  }

 private:
  struct Matrix {
    std::string name;
    QuantType type;
    uint64_t n_cols;
    uint64_t n_rows;
  };

  void add(const std::string& name, QuantType type, uint64_t n_cols, uint64_t n_rows) {
    std::string data(quant_bytes(type, n_cols) * n_rows, '\0');
    for (char& c : data)
      c = static_cast<char>(random_());
    writer_.set_tensor(name, {n_cols, n_rows}, static_cast<uint32_t>(type), data);
    data_[name] = std::move(data);
  }
  void add_group_of(const std::vector<Matrix>& matrices) {
    groups_.emplace_back();
    for (const Matrix& matrix : matrices) {
      add(matrix.name, matrix.type, matrix.n_cols, matrix.n_rows);
      groups_.back().push_back(matrix.name);
    }
  }

  std::mt19937_64 random_;
  GgufWriter writer_;
  std::vector<std::vector<std::string>> groups_;
  std::map<std::string, std::string> data_;
  std::unique_ptr<GgufModel> model_;
  WeightPlan plan_;
};

}  // namespace nightsweep
