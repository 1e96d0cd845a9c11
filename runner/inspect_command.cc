#include "runner/inspect_command.h"

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/inspect.h"

namespace nightsweep {

int inspect_file(
    const InspectRequest& request,
    const std::function<void(std::string_view)>& print) {
  if (request.tensor.empty() != request.output_path.empty()) {
    fail(ErrorKind::usage, "--tensor NAME and -o OUT go together: one of them is missing");
  }
  GgufModel model = GgufModel::open(request.model_path);
  if (!request.tensor.empty()) {
    for (const std::string& path : model.paths()) {
      if (!is_same_file(path, request.output_path)) continue;
      fail(ErrorKind::usage, "-o {} would overwrite the model", request.output_path);
    }
    AtomicFile file(request.output_path);
    write_tensor_values(model, request.tensor, [&](std::string_view piece) { file.write(piece); });
    file.commit();
    return 0;
  }
  InspectReport report = inspect_model(model);
  inspect_vocabulary(model, report);
  print(request.json ? inspect_json(model, report).dump() + "\n" : inspect_text(model, report));
  if (report.why_not.empty()) return 0;
  log_error("cannot run: {}", report.why_not);
  return static_cast<int>(ErrorKind::model);
}

}  // namespace nightsweep
