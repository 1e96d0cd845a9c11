#include "kernels/device.h"

namespace nightsweep {

const char* kv_type_name(KvType type) {
  switch (type) {
    case KvType::f32:
      return "f32";
    case KvType::f16:
      return "f16";
    case KvType::q8_0:
      return "q8_0";
  }
  return "";
}

void Device::norm_input(
    const float* x,
    const float* weight,
    float epsilon,
    uint32_t rows,
    uint32_t dim,
    float* normed) {
  rms_norm(x, weight, epsilon, rows, dim, normed);
  set_input(normed, rows, dim);
}

void Device::gate_input(
    const float* gate,
    const float* up,
    uint32_t rows,
    uint32_t dim,
    float* gated) {
  swiglu(gate, up, size_t{rows} * dim, gated);
  set_input(gated, rows, dim);
}

void Device::rope_and_store(
    const RopeShape& q_shape,
    const RopeShape& k_shape,
    const KvLayer& layer,
    float* q,
    float* k,
    const float* v) {
  rope(q_shape, q);
  rope(k_shape, k);
  store_kv(layer, k, v);
}

}  // namespace nightsweep
