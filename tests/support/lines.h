// Request lines in tests: parse, and expect a job or a refusal.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "jobs/jsonl.h"

namespace nightsweep {

// REQUIRES: the line is a job; a refusal fails the test and gives an empty job.
inline Job job_of(std::string_view line, const LineOptions& options = {}) {
  auto parsed = parse_line(line, 7, options);
  if (auto* error = std::get_if<LineError>(&parsed)) {
    ADD_FAILURE() << line << "\n" << error->text("in.jsonl");
    return {};
  }
  return std::get<Job>(std::move(parsed));
}

// REQUIRES: the line is refused.
inline LineError error_of(std::string_view line, const LineOptions& options = {}) {
  auto parsed = parse_line(line, 7, options);
  if (std::holds_alternative<Job>(parsed)) {
    ADD_FAILURE() << "accepted: " << line;
    return {};
  }
  return std::get<LineError>(std::move(parsed));
}

// The refusal as a person reads it, without the file and line.
inline std::string refusal_of(std::string_view line, const LineOptions& options = {}) {
  std::string text = error_of(line, options).text("f");
  return text.substr(text.find(": ") + 2);
}

inline std::string chat_line(std::string_view members) {
  std::string line = R"({"messages":[{"role":"user","content":"hi"}])";
  if (!members.empty()) line += ",";
  return line.append(members) + "}";
}

inline std::string completion_line(std::string_view members) {
  std::string line = R"({"prompt":"hi")";
  if (!members.empty()) line += ",";
  return line.append(members) + "}";
}

}  // namespace nightsweep
