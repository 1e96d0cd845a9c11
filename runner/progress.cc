#include "runner/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>

#include "base/log.h"
#include "base/units.h"
#include "runner/output.h"

namespace nightsweep {

namespace {

// Whether a live line stands on the terminal; messages come from other threads too.
std::atomic<bool> line_stands = false;

void wipe_line() {
  if (line_stands.exchange(false)) write_message("\r\033[K");
}

size_t terminal_columns() {
  constexpr size_t kDefault = 80;
  struct winsize size {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefault;
  return size.ws_col;
}

}  // namespace

std::string progress_text(const ProgressState& state) {
  uint64_t finished = state.answered + state.failed;
  std::string text = state.total > 0 ? format("{}/{} answered", finished, state.total)
                                     : format("{} answered", finished);
  if (state.failed > 0) text += format(" ({} failed)", state.failed);
  text += format(", {} in flight, {:.1f} tokens/s", state.in_flight, state.tokens_per_s);
  if (state.link_share > 0) text += format(", link {:.0f}%", 100 * state.link_share);
  if (state.disk_share > 0) text += format(", disk {:.0f}%", 100 * state.disk_share);
  if (state.left_s >= 0) text += ", " + duration_text(state.left_s) + " left";
  return text;
}

Json progress_json(const ProgressState& state) {
  Json json = Json::Object{};
  json.set("answered", state.answered);
  json.set("failed", state.failed);
  json.set("in_flight", state.in_flight);
  json.set("tokens_per_s", state.tokens_per_s);
  json.set("jobs_per_s", state.jobs_per_s);
  json.set("disk_share", state.disk_share);
  json.set("link_share", state.link_share);
  json.set("left_s", state.left_s >= 0 ? Json(state.left_s) : Json(nullptr));
  return json;
}

void RateMeter::add(double now_s, double count) {
  points_.emplace_back(now_s, count);
  while (points_.size() > 2 && points_.front().first < now_s - window_s_)
    points_.pop_front();
}

double RateMeter::per_second() const {
  if (points_.size() < 2) return 0;
  double taken_s = points_.back().first - points_.front().first;
  return taken_s > 0 ? (points_.back().second - points_.front().second) / taken_s : 0;
}

ProgressLine::Style ProgressLine::style_for(bool quiet) {
  if (quiet) return Style::silent;
  return ::isatty(STDERR_FILENO) != 0 ? Style::live : Style::plain;
}

ProgressLine::ProgressLine(Style style) : style_(style) {
  if (style_ == Style::live) set_log_line_wiper(wipe_line);
}

ProgressLine::~ProgressLine() {
  if (style_ != Style::live) return;
  wipe_line();
  set_log_line_wiper(nullptr);
}

void ProgressLine::show(const ProgressState& state) {
  constexpr auto kPlainEvery = std::chrono::minutes(1);
  if (style_ == Style::silent) return;
  std::string text = progress_text(state);
  if (style_ == Style::live) {
    text.resize(std::min(text.size(), terminal_columns() - 1));
    write_message("\r\033[K" + text);
    line_stands = true;
    return;
  }
  auto now = std::chrono::steady_clock::now();
  if (now - last_plain_ < kPlainEvery) return;
  last_plain_ = now;
  log_info("{}", text);
}

}  // namespace nightsweep
