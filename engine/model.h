// Model: one architecture's forward pass, written once over the operators of a Device.
//
// To add an architecture: engine/models/NAME.cc and one line in the table of model.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/gguf.h"
#include "engine/kv_cache.h"
#include "engine/model_config.h"
#include "engine/step.h"
#include "engine/tensor_reader.h"
#include "engine/weight_stream.h"
#include "engine/weights.h"
#include "kernels/device.h"

namespace nightsweep {

// Limits of a forward pass; scratch memory is made for them.
struct StepLimits {
  uint32_t max_rows = 0;
  uint32_t max_logit_rows = 0;
  // Rows that operators work on at once; 0: all. A step of more rows runs the operators of a window
  // of weights for one batch of rows after the other, and holds the window's weights meanwhile:
  // they pass once, and only the residual stream is held for all rows. At least max_logit_rows.
  uint32_t batch_rows = 0;
  bool has_batches() const { return batch_rows > 0 && batch_rows < max_rows; }
  uint32_t rows_at_once() const { return has_batches() ? batch_rows : max_rows; }
};

struct ModelOptions {
  StepLimits limits;
  uint64_t max_slice_bytes = 4 << 20;
  bool embedding_resident = false;  // else rows are read from the file as they are needed
  // On a device with memory of its own: the whole table in the host's from the start, where it is
  // not resident.
  bool embedding_in_host = false;
  bool verify_numerics = false;  // look for NaN and infinity after every layer; costs time
};

// The slices of a model's sweep, and tensors that they name which no file has by itself.
struct ModelSlices {
  WeightPlan plan;
  std::deque<GgufTensor> parts_of_fused;  // addresses stay
};

// Where a row of a step first held NaN or infinity.
struct NumericFault {
  enum class Place : uint8_t { none, embedding, layer };
  Place place = Place::none;
  uint32_t layer = 0;  // for a layer, from 0
};

class Model {
 public:
  // Checks the tensors, cuts them into slices, loads norms and biases. `gguf` and `device` must
  // outlive it. Throws Error(model).
  static std::unique_ptr<Model> make(
      const GgufModel& gguf,
      const ModelConfig& config,
      Device& device,
      const ModelOptions& options);
  virtual ~Model() = default;

  // The slices that make() would cut, without a device. `gguf` must outlive them.
  // Throws Error(model).
  static ModelSlices
  cut(const GgufModel& gguf, const ModelConfig& config, uint64_t max_slice_bytes);
  // Columns of the widest matrix of a layer.
  static uint32_t widest_input(const ModelConfig& config);
  // Bytes of scratch memory that a forward pass of these limits takes, beside what the device
  // reserves for its operators.
  static uint64_t scratch_bytes(const ModelConfig& config, const StepLimits& limits);

  virtual const WeightPlan& weight_plan() const = 0;
  // Runs one sweep; every slice of the plan is acquired once, in order, and those of a window are
  // leased together where the step has more rows than are worked on at once. Keys and values of the
  // rows are stored in their pages, which must be there. Returns the logits of step.logit_rows,
  // (logit_rows.size(), n_vocab), in memory of the device, queued behind all else; the caller's
  // until the next call.
  virtual float* forward(WeightStream& stream, const KvCache& kv, const Step& step) = 0;
  // Throws Error(model) when a file from which rows of the embedding still come is not what it was;
  // nothing that came of a step may be believed before.
  virtual void check_files() const = 0;
  // (rows) of the last step; empty unless asked for.
  virtual std::span<const NumericFault> numeric_faults() const = 0;
};

// Rows of the embedding by token id: resident, or read from the file as they are needed. On a
// device with memory of its own the host's memory has the whole table, or at least the rows that
// have been read once: between two sweeps the device must not wait for the disk.
class EmbeddingTable {
 public:
  EmbeddingTable(
      const GgufTensor& tensor,
      TensorReader& reader,
      Device& device,
      const ModelOptions& options);
  // Whether rows still come from the file.
  bool reads_file() const { return reads_file_; }
  // out: (ids.size(), n_cols)
  void lookup(std::span<const uint32_t> ids, float* out);

 private:
  const GgufTensor& tensor_;
  Device& device_;
  TensorReader& reader_;
  MatrixView view_;
  const uint32_t rows_at_once_;
  std::unique_ptr<DeviceMemory> memory_;   // the whole table, or rows_at_once_ staging rows
  std::unique_ptr<DeviceMemory> staging_;  // the same in the host's memory, where that is another
  std::vector<uint32_t> staging_ids_;
  std::unique_ptr<std::byte[]> seen_rows_;  // by id; only what is_seen_ says has been touched
  std::vector<bool> is_seen_;
  bool resident_;
  bool reads_file_;

  void look_up_at_once(std::span<const uint32_t> ids, float* out);
  void gather_seen(std::span<const uint32_t> ids);
};

// Reads a whole tensor into memory of the device.
void load_tensor(const GgufTensor& tensor, TensorReader& reader, Device& device, std::byte* to);

// Small tensors that stay in memory as float32: norms and biases.
std::unique_ptr<DeviceMemory>
load_floats(const GgufTensor& tensor, TensorReader& reader, Device& device);

std::unique_ptr<Model> make_llama(
    const GgufModel& gguf,
    const ModelConfig& config,
    Device& device,
    const ModelOptions& options);
ModelSlices
cut_llama_slices(const GgufModel& gguf, const ModelConfig& config, uint64_t max_slice_bytes);

}  // namespace nightsweep
