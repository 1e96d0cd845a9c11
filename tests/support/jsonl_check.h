// What must hold for any bytes that are given as a request file; shared by the fuzz target and the
// mutation test.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "jobs/jsonl.h"

namespace nightsweep {

// Aborts when a promise is broken. Returns whether the line is a job.
inline bool check_line(std::string_view line, const LineOptions& options) {
  auto parsed = parse_line(line, 1, options);
  if (auto* error = std::get_if<LineError>(&parsed)) {
    std::string text = error->text("f");
    bool is_told = !error->message.empty() && !error->code.empty() && text.size() < 2000 &&
                   text.find('\n') == std::string::npos;
    // Whatever the line held, its error can be written and read as strict JSON.
    std::string body = error_body(error->api_error()).dump();
    if (!is_told || Json::parse(body).dump() != body) std::abort();
    return false;
  }
  const Job& job = std::get<Job>(parsed);
  std::string text = job_to_text(job);
  Job back = job_from_text(text);
  if (!(back == job) || job_to_text(back) != text) std::abort();
  if (job.parameters.n < 1 || job.parameters.n > 128) std::abort();
  if (job.endpoint == Endpoint::completions && job.prompts.empty()) std::abort();
  if (job.endpoint == Endpoint::chat && job.messages.as_array().empty()) std::abort();
  return true;
}

}  // namespace nightsweep
