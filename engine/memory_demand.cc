#include "engine/memory_demand.h"

#include "engine/slice_views.h"

namespace nightsweep {

MemoryDemand memory_demand(
    const GgufModel& gguf,
    const ModelConfig& config,
    const DeviceSizes& device,
    const KvShape& kv) {
  MemoryDemand demand;
  for (const GgufTensor& tensor : gguf.tensors()) {
    auto type = static_cast<QuantType>(tensor.ggml_type);
    if (tensor.dims.size() < 2) {
      demand.small_tensor_bytes += tensor.n_elems() * sizeof(float);
      continue;
    }
    bool is_embedding = tensor.name == "token_embd.weight";
    if (is_embedding) {
      demand.embedding_bytes = tensor.size_bytes;
      demand.embedding_row_bytes = quant_bytes(type, tensor.dims[0]);
    }
    if (!is_embedding || config.tied_output) {
      demand.weight_bytes += device.packed_bytes(
          type, static_cast<uint32_t>(tensor.dims[1]), static_cast<uint32_t>(tensor.dims[0]));
    }
  }
  demand.kv_page_bytes = KvCache::page_bytes_all_layers(device, kv, config.n_layers);
  if (!device.shares_host_memory()) {
    demand.reserve_bytes = [&device, &config](const StepLimits& limits) {
      return device.reserve_bytes(limits.rows_at_once(), Model::widest_input(config));
    };
    demand.window_bytes = [&gguf, &device, &config](uint64_t max_slice_bytes) {
      return largest_window_bytes(Model::cut(gguf, config, max_slice_bytes).plan, device);
    };
  }
  return demand;
}

}  // namespace nightsweep
