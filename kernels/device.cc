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

}  // namespace nightsweep
