// Times of the linear operator alone, for the shapes of large models.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace nightsweep::cuda {

struct LinearBenchOptions {
  std::string shape;    // only shapes whose name contains this
  uint32_t n_rows = 0;  // only this number of rows; 0: all
  bool allow_wide = true;
  int tile = -1;  // one TileShape for all; -1: as in use
};

// Prints one line a shape, one column a number of rows: microseconds of one call. Weights rotate
// over more memory than the second-level cache holds; calls run in a graph, gaps included; median
// of several replays. Throws Error(device).
void run_linear_bench(const LinearBenchOptions& options, std::FILE* out);

}  // namespace nightsweep::cuda
