#include "kernels/cuda/sizes.h"

#include "base/error.h"

namespace nightsweep {

namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace): the parts of this device

// What LinearOperator::workspace_bytes() is at most: four splits of 128 KiB of sums a
// multiprocessor, of which the largest GPU has 188 (an H200, with 132, takes 66 MiB).
constexpr uint64_t kLinearWorkspaceBytes = uint64_t{4} * 192 * (128 << 10);

class CudaSizes final : public DeviceSizes {
 public:
  bool shares_host_memory() const override { return false; }
  size_t packed_bytes(QuantType type, uint32_t n_rows, uint32_t n_cols) const override {
    return packed_matrix_bytes(type, n_rows, n_cols);
  }
  size_t kv_page_bytes(const KvShape& shape) const override { return cuda_kv_page_bytes(shape); }
  uint64_t reserve_bytes(uint32_t max_rows, uint32_t max_cols) const override {
    return prepared_input_bytes(max_rows, max_cols) + kLinearWorkspaceBytes +
           kAttentionWorkspaceBytes + rope_table_bytes(max_rows);
  }
};

}  // namespace

namespace cuda {

size_t cuda_kv_page_bytes(const KvShape& shape) {
  if (shape.type == KvType::f32) {
    fail(ErrorKind::usage, "--kv f32: a GPU keeps keys and values as f16 or q8_0");
  }
  if (padded_head_dim(shape.head_dim) == 0) {
    fail(
        ErrorKind::model, "heads of {} elements: expected at most {} on a GPU (use --device cpu)",
        shape.head_dim, kMaxHeadDim);
  }
  return size_t{kv_head_layout(shape.type, shape.head_dim).size_bytes} * shape.n_kv_heads;
}

}  // namespace cuda

std::unique_ptr<DeviceSizes> cuda_sizes() {
  return std::make_unique<CudaSizes>();
}

}  // namespace nightsweep
