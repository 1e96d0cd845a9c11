#include "runner/night.h"

#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/units.h"

namespace nightsweep {

namespace {

constexpr int64_t kPauseMs = 2 * 3'600 * int64_t{1000};

double share_of_binding(const SweepRecord& record) {
  if (record.binding == "link") return record.link_share;
  return record.binding == "disk" ? record.disk_share : -1;
}

Json number_or_null(double value) {
  return value >= 0 ? Json(value) : Json(nullptr);
}

}  // namespace

std::optional<Night> night_of(const std::vector<SweepRecord>& records) {
  if (records.empty()) return std::nullopt;
  auto first = records.end() - 1;
  while (first != records.begin() && first->begin_ms - (first - 1)->end_ms < kPauseMs)
    --first;
  Night night;
  night.begin_ms = first->begin_ms;
  night.end_ms = records.back().end_ms;
  struct Bound {
    double seconds = 0;
    double share_s = 0;  // share times seconds
  };
  std::map<std::string, Bound> bounds;
  uint64_t measured_tokens = 0;
  for (auto record = first; record != records.end(); ++record) {
    night.n_sweeps += record->n_sweeps;
    night.prompt_tokens += record->prefill_tokens;
    night.shared_tokens += record->shared_tokens;
    night.generated_tokens += record->new_tokens;
    night.link_bytes += record->link_bytes;
    night.disk_bytes += record->disk_bytes;
    night.sweep_s += record->sweep_s;
    night.queue_s += record->queue_s;
    night.wait_s += record->wait_s;
    night.link_wait_s += record->link_wait_s;
    night.ring_wait_s += record->ring_wait_s;
    night.disk_busy_s += record->disk_busy_s;
    Bound& bound = bounds[record->binding];
    bound.seconds += record->sweep_s;
    bound.share_s += record->sweep_s * share_of_binding(*record);
    if (record->energy_j >= 0) {
      night.energy_j = std::max(night.energy_j, 0.0) + record->energy_j;
      measured_tokens += record->new_tokens;
    }
  }
  const auto most = std::max_element(
      bounds.begin(), bounds.end(),
      [](const auto& a, const auto& b) { return a.second.seconds < b.second.seconds; });
  night.binding = most->first;
  if (night.binding != "device" && most->second.seconds > 0)
    night.share = most->second.share_s / most->second.seconds;
  if (measured_tokens > 0)
    night.joules_per_token = night.energy_j / static_cast<double>(measured_tokens);
  return night;
}

Json night_json(const Night& night) {
  Json json = Json::Object{};
  json.set("began_at", night.begin_ms / 1000);
  json.set("ended_at", night.end_ms / 1000);
  json.set("sweeps", night.n_sweeps);
  json.set("prompt_tokens", night.prompt_tokens);
  json.set("shared_tokens", night.shared_tokens);
  json.set("generated_tokens", night.generated_tokens);
  json.set("tokens_per_s", night.tokens_per_s());
  json.set("binding", night.binding);
  json.set("share", number_or_null(night.share));
  json.set("link_bytes", night.link_bytes);
  json.set("disk_bytes", night.disk_bytes);
  json.set("sweep_s", night.sweep_s);
  json.set("queue_s", night.queue_s);
  json.set("wait_s", night.wait_s);
  json.set("link_wait_s", night.link_wait_s);
  json.set("ring_wait_s", night.ring_wait_s);
  json.set("disk_busy_s", night.disk_busy_s);
  json.set("energy_j", number_or_null(night.energy_j));
  json.set("joules_per_token", number_or_null(night.joules_per_token));
  return json;
}

std::string night_text(const Night& night, const std::string& began) {
  std::string text = format(
      "since {}: {} tokens generated in {} sweeps, {:.1f} tokens/s; {} prompt tokens", began,
      night.generated_tokens, night.n_sweeps, night.tokens_per_s(), night.prompt_tokens);
  if (night.shared_tokens > 0) text += format(", {} more shared", night.shared_tokens);
  text += "\n";
  if (night.binding == "device") {
    text += "the device's arithmetic binds";
  } else {
    text +=
        format("the {} binds, at {:.0f}% of its measured rate", night.binding, 100 * night.share);
  }
  if (night.link_bytes > 0) text += format(", {} over the link", size_text(night.link_bytes));
  if (night.disk_bytes > 0) text += format(", {} from the disk", size_text(night.disk_bytes));
  if (night.joules_per_token >= 0) text += format("; {:.2f} J a token", night.joules_per_token);
  return text + "\n";
}

}  // namespace nightsweep
