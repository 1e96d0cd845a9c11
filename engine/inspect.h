// What a model file is, for people and scripts, and whether it can run here. The verdict comes
// from the checks that loading makes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "engine/gguf.h"
#include "engine/model_config.h"

namespace nightsweep {

// Tensors of one type.
struct InspectedType {
  std::string name;  // "Q4_K"
  uint64_t n_tensors = 0;
  uint64_t size_bytes = 0;
};

struct InspectReport {
  uint64_t n_params = 0;
  uint64_t weight_bytes = 0;
  std::vector<InspectedType> types;  // most bytes first
  // What the metadata says of the shape: "layers", "30". There for any architecture.
  std::vector<std::pair<std::string, std::string>> shape;
  std::optional<ModelConfig> config;  // none: it could not be read, why_not says why
  uint64_t n_tokens = 0;
  std::string tokenizer;                                         // "gpt2/smollm"
  std::vector<std::pair<std::string, std::string>> special_ids;  // "bos", "1"
  uint64_t chat_template_bytes = 0;                              // 0: none
  std::vector<std::string> notes;                                // worth knowing, no obstacle
  std::string why_not;                                           // empty: it can run
};

// Config, tensors and size of the vocabulary. Throws only where the files cannot be read.
InspectReport inspect_model(const GgufModel& model);

// Adds what tokenizer and chat template say: a tokenizer that is not supported is a reason not to
// run, a template that does not compile is a note.
void inspect_vocabulary(const GgufModel& model, InspectReport& report);

std::string inspect_text(const GgufModel& model, const InspectReport& report);
// One object: file, version, architecture, can_run, why_not, tensors, metadata and so on; arrays of
// the metadata are told by type and count.
Json inspect_json(const GgufModel& model, const InspectReport& report);

// Writes the tensor's values as float32, little-endian, in pieces. Throws Error(usage) for a name
// that is not there, Error(model) for a type that cannot be decoded.
void write_tensor_values(
    const GgufModel& model,
    std::string_view tensor_name,
    const std::function<void(std::string_view)>& write);

}  // namespace nightsweep
