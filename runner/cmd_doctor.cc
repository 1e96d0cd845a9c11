#include "base/json.h"
#include "runner/command.h"
#include "runner/doctor.h"
#include "runner/output.h"

namespace nightsweep {

namespace {

int doctor(const Invocation& invocation) {
  CommonOptions options = begin_command(invocation.arguments);
  std::vector<Finding> findings = examine(options);
  int code = 0;
  std::string text;
  Json::Array list;
  for (const Finding& finding : findings) {
    if (finding.level == Finding::Level::error && code == 0) code = static_cast<int>(finding.kind);
    text += format("{:<8} {:<14} {}\n", level_name(finding.level), finding.check, finding.text);
    if (!finding.remedy.empty()) text += format("{:<8} {:<14} -> {}\n", "", "", finding.remedy);
    Json json = Json::Object{};
    json.set("level", level_name(finding.level));
    json.set("check", finding.check);
    json.set("text", finding.text);
    json.set("remedy", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy));
    list.push_back(std::move(json));
  }
  if (options.json) {
    Json json = Json::Object{};
    json.set("can_start", code == 0);
    json.set("findings", std::move(list));
    text = json.dump() + "\n";
  }
  Stdout().write(text);
  return code;
}

}  // namespace

Command make_doctor_command() {
  return {
      .name = "doctor",
      .summary = "check machine, driver, disk and queue; every finding with its remedy",
      .usage = "[options]",
      .example = "nightsweep doctor --model model.gguf",
      .options = join(
          {{json_option()},
           engine_options(),
           worker_options(),
           queue_options(),
           general_options()}),
      .run = doctor};
}

}  // namespace nightsweep
