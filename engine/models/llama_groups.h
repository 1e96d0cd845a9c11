// The matrices of the llama architecture, cut into the slices of a sweep. Needs no device.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/llama_tensors.h"
#include "engine/model.h"
#include "engine/weights.h"

namespace nightsweep {

struct LlamaLayerGroups {
  WeightGroup qkv;
  WeightGroup attention_out;
  WeightGroup gate_up;
  WeightGroup down;
  WeightWindow attention;     // qkv and attention_out
  WeightWindow feed_forward;  // gate_up and down
};

struct LlamaGroups {
  ModelSlices slices;
  std::vector<LlamaLayerGroups> layers;
  WeightGroup head;
};

// In the order of a sweep. A fused matrix of q, k and v is parted, and so is its bias: `tensors`
// then has the parts. Throws Error(model) as add_group() does.
LlamaGroups cut_llama(LlamaTensors& tensors, const ModelConfig& config, uint64_t max_slice_bytes);

}  // namespace nightsweep
