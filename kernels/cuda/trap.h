// A kernel that ends the context it runs in.
#pragma once

namespace nightsweep::cuda {

// Queues it on the GPU that is current. A build without CUDA has none: Error(internal).
void launch_trap();

}  // namespace nightsweep::cuda
