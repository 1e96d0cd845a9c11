#include "fuzz/gguf_target.h"

#include "base/error.h"
#include "engine/gguf.h"
#include "engine/llama_tensors.h"

namespace nightsweep {

namespace {

bool try_with_data(std::span<const std::byte> head, uint64_t data_bytes) {
  try {
    uint64_t file_bytes = head.size() + data_bytes;
    GgufModel model = GgufModel::from_head(
        "fuzz.gguf", parse_gguf_head(head, file_bytes, "fuzz.gguf"), file_bytes);
    ModelConfig config = read_model_config(model, {});
    check_llama_tensors(model, config);
    check_vocabulary_size(model, config);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::model) throw;
    return false;
  }
}

}  // namespace

bool try_gguf(std::span<const std::byte> head) {
  // Heads alone stay small; the tensors they list find room in data that is only claimed.
  constexpr uint64_t kClaimedData = 1ULL << 30;
  bool whole = try_with_data(head, 0);
  return try_with_data(head, kClaimedData) || whole;
}

}  // namespace nightsweep
