#include "kernels/device_fault.h"

#include "base/error.h"
#include "kernels/cuda/trap.h"

namespace nightsweep {

void lose_device(const Device& device) {
  if (device.shares_host_memory()) {
    fail(ErrorKind::device, "{}: lost, as NIGHTSWEEP_FAULT asks", device.description());
  }
  cuda::launch_trap();
}

}  // namespace nightsweep
