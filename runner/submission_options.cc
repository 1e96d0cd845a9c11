// The command line of submit and run, as far as it is about lines and their batch.

#include <algorithm>

#include "base/units.h"
#include "runner/submission.h"

namespace nightsweep {

namespace {

Endpoint parse_endpoint(const std::string& text) {
  for (Endpoint endpoint : {Endpoint::chat, Endpoint::completions}) {
    std::string url = endpoint_url(endpoint);
    if (text == url || "/v1" + text == url || "/v1/" + text == url) return endpoint;
  }
  fail(
      ErrorKind::usage, "--endpoint: expected {} or {}, found '{}'", endpoint_url(Endpoint::chat),
      endpoint_url(Endpoint::completions), text);
}

}  // namespace

std::vector<OptionSpec> submission_options() {
  return {
      {.name = "set",
       .value = "KEY=JSON",
       .help = "a body parameter for lines that do not set it",
       .repeatable = true},
      {.name = "map-model",
       .value = "A=B",
       .help = "lines that name model A go to B",
       .repeatable = true},
      {.name = "endpoint", .value = "URL", .help = "for lines without url: /v1/chat/completions"},
      {.name = "name", .value = "TEXT", .help = "a name for the batch (default: the file's)"},
      {.name = "keep-going", .value = "", .help = "queue the good lines, bad ones get errors"},
      {.name = "lenient", .value = "", .help = "list unknown parameters in place of refusing"},
      {.name = "max-line", .value = "SIZE", .help = "longest line (default 16MiB)"},
  };
}

std::vector<OptionSpec> batch_options() {
  return {
      {.name = "priority", .value = "N", .help = "higher goes first, -100 to 100 (default 0)"},
      {.name = "expires", .value = "TIME", .help = "what is unfinished after 24h gets an error"},
      {.name = "idempotency-key",
       .value = "KEY",
       .help = "your name for this submission: the same again adds nothing"},
  };
}

void read_batch_options(const Arguments& arguments, SubmissionOptions& options) {
  constexpr uint64_t kMostPriority = 100;
  if (auto text = arguments.find("priority")) {
    bool is_negative = text->starts_with("-");
    auto amount = static_cast<int32_t>(
        parse_count(is_negative ? text->substr(1) : *text, "--priority", 0, kMostPriority));
    options.priority = is_negative ? -amount : amount;
  }
  if (auto text = arguments.find("expires")) {
    options.expires_s = parse_duration(*text, "--expires");
  }
  options.idempotency_key = arguments.find("idempotency-key").value_or("");
}

SubmissionOptions read_submission_options(const Arguments& arguments) {
  SubmissionOptions options;
  options.files = arguments.operands();
  if (std::count(options.files.begin(), options.files.end(), "-") > 1) {
    fail(ErrorKind::usage, "stdin (-) is given twice");
  }
  if (auto text = arguments.find("endpoint")) options.endpoint = parse_endpoint(*text);
  for (const std::string& text : arguments.all("set")) {
    auto [key, value] = split_pair(text, "--set");
    try {
      options.defaults.emplace_back(key, Json::parse(value));
    } catch (const JsonError& error) {
      fail(
          ErrorKind::usage,
          "--set {}: expected JSON behind the '=', found {} ({}; a string needs its quotes: "
          "--set 'stop=\"END\"')",
          key, value, error.what());
    }
  }
  for (const std::string& text : arguments.all("map-model"))
    options.model_map.push_back(split_pair(text, "--map-model"));
  options.name = arguments.find("name").value_or("");
  options.keep_going = arguments.has("keep-going");
  options.lenient = arguments.has("lenient");
  if (auto text = arguments.find("max-line")) {
    options.max_line_bytes = parse_size(*text, "--max-line");
    if (options.max_line_bytes == 0) fail(ErrorKind::usage, "--max-line: expected a size above 0");
  }
  return options;
}

}  // namespace nightsweep
