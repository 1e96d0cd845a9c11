// Times the linear operator of a GPU: linear_bench [SHAPE [ROWS]]. No test: ctest does not run it.
#include "kernels/cuda/linear_bench.h"

#include <cstdlib>

#include "base/error.h"

int main(int argc, char** argv) {
  nightsweep::cuda::LinearBenchOptions options;
  if (argc > 1) options.shape = argv[1];
  if (argc > 2) options.n_rows = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  try {
    nightsweep::cuda::run_linear_bench(options, stdout);
  } catch (const nightsweep::Error& error) {
    std::fprintf(stderr, "linear_bench: %s\n", error.what());
    return static_cast<int>(error.kind());
  }
  return 0;
}
