// What `nightsweep inspect` does, apart from its command line.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace nightsweep {

struct InspectRequest {
  std::string model_path;
  bool json = false;
  std::string tensor;       // empty: a report of the whole model
  std::string output_path;  // of the tensor's values
};

// Gives the report to `print`, piece by piece; or writes the tensor to its file, which appears
// complete or not at all. Returns the exit code: that of a model error, with the reason on stderr,
// for a sound file that cannot run here. Throws Error.
int inspect_file(const InspectRequest& request, const std::function<void(std::string_view)>& print);

}  // namespace nightsweep
