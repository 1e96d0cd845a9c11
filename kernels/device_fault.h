// A device that is lost on purpose, for tests of what must survive.
#pragma once

#include "kernels/device.h"

namespace nightsweep {

// A GPU: from now on every call of this process fails as when the driver has lost the card, for a
// kernel of ours traps; calls return first, and the next one that looks at a status throws. A
// device in the host's memory cannot be lost: Error(device) at once.
void lose_device(const Device& device);

}  // namespace nightsweep
