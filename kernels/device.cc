#include "kernels/device.h"

#include <chrono>
#include <cstring>

#include "base/error.h"

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

namespace {

// Of a device whose calls have run when they return: it has always passed.
class PassedEvent final : public DeviceEvent {
 public:
  std::chrono::steady_clock::time_point at;
};

}  // namespace

std::unique_ptr<HostRegistration> Device::register_host(
    const std::byte* /*from*/,
    size_t /*size_bytes*/) {
  fail(ErrorKind::device, "{}: memory of the host cannot be registered with it", description());
}

void Device::queue_copy(const std::byte* from, size_t size_bytes, std::byte* to) {
  std::memcpy(to, from, size_bytes);
}

std::unique_ptr<DeviceEvent> Device::make_event() {
  return std::make_unique<PassedEvent>();
}

void Device::record(DeviceEvent& event, WorkQueue /*queue*/) {
  static_cast<PassedEvent&>(event).at = std::chrono::steady_clock::now();
}

void Device::hold_back(WorkQueue /*queue*/, const DeviceEvent& /*event*/) {}

void Device::wait(const DeviceEvent& /*event*/) {}

std::unique_ptr<DeviceEvent> Device::make_timed_event() {
  return make_event();
}

double Device::seconds_between(const DeviceEvent& from, const DeviceEvent& to) {
  const auto& begin = static_cast<const PassedEvent&>(from);
  const auto& end = static_cast<const PassedEvent&>(to);
  return std::chrono::duration<double>(end.at - begin.at).count();
}

void Device::repack(const MatrixView& file, std::byte* packed) {
  pack(file, packed);
}

void Device::pick(
    float* /*logits*/,
    uint32_t /*n_vocab*/,
    std::span<const PickRow> /*rows*/,
    std::span<Pick> /*picks*/) {
  fail(ErrorKind::internal, "{} does not choose tokens", description());
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

void Device::attention_input(
    const KvLayer& layer,
    const float* q,
    uint32_t rows,
    uint32_t n_heads,
    float scale,
    float* attended) {
  attention(layer, q, n_heads, scale, attended);
  set_input(attended, rows, n_heads * layer.shape.head_dim);
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
