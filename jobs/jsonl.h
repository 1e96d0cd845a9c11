// Request lines to jobs, answers to result lines. Formats: OpenAI batch, Mistral, and plain lines.
// What each body parameter does (honoured, inert, refused) is one table in parameters.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "jobs/job.h"

namespace nightsweep {

// Nesting of stored text: a line's limit, and room for what we wrap around it.
inline constexpr size_t kMaxStoredDepth = 1024;

struct LineOptions {
  std::optional<Endpoint> endpoint;                    // --endpoint: for lines without url
  std::vector<std::pair<std::string, Json>> defaults;  // --set: for lines that do not set the key
  // Parameters that are unknown or not supported are listed in Job::ignored, not refused.
  bool lenient = false;
  std::function<int64_t()> draw_seed;  // for lines without a seed; without it they get 0
};

// Why a line is refused. `field` is a path such as "body.temperature", "--set temperature" where
// the default is at fault, and empty where the line is no JSON; the message reads
// "expected ..., found ...".
struct LineError {
  uint64_t line = 0;
  std::string field;
  std::string message;
  std::string custom_id;  // as far as it could be read, else line-N
  // unsupported_parameter, unsupported_value, unknown_parameter, missing_required_parameter,
  // invalid_type, invalid_value, invalid_json, line_too_long, model_not_found (which is a 404).
  std::string code;
  std::string text(std::string_view file) const;  // FILE:N: field: message
  ApiError api_error() const;                     // `param` as OpenAI names it: without "body."
};

// `text`: one line without its line end, not blank.
std::variant<Job, LineError>
parse_line(std::string_view text, uint64_t line, const LineOptions& options);
// Why a body parameter cannot be a default, for lines of either endpoint; nullopt: it can.
std::optional<std::string> default_complaint(const std::string& key, const Json& value);
// The refusal of a line that LineReader flagged as too long.
LineError line_too_long(uint64_t line, size_t max_line_bytes);

// A job at rest, and back, exactly. Everything that decides the answer is in it.
std::string job_to_text(const Job& job);
// Throws Error(queue) when the text is damaged or of a newer version.
Job job_from_text(std::string_view text);

// How long the longest sequence of a job will be, prompt and answer, as far as that can be told
// without a tokenizer and before it is answered.
uint64_t expected_tokens(const Job& job);

// Reads lines from a descriptor in pieces: strips a BOM at the start, CR before LF, skips blank
// lines (spaces, tabs and CR alone), counts them. A line beyond max_line_bytes (line end not
// counted) is flagged without being kept, its text is empty.
class LineReader {
 public:
  // `path` is for messages. The descriptor stays the caller's; files, pipes and terminals do.
  LineReader(int fd, std::string path, size_t max_line_bytes);
  struct Line {
    std::string_view text;  // valid until the next call
    uint64_t number = 0;
    bool too_long = false;
  };
  // nullopt at the end. Throws Error(input) when the file cannot be read or is UTF-16 or UTF-32.
  std::optional<Line> next();
  // Called with every byte read, in order (to hash the content).
  void on_bytes(std::function<void(std::string_view)> observer) { observer_ = std::move(observer); }

 private:
  bool fill();
  void skip_byte_order_mark();
  bool take_raw_line(std::string_view& text, bool& too_long);

  int fd_;
  std::string path_;
  size_t max_line_bytes_;
  std::string buffer_;
  size_t start_ = 0;    // of the line at hand, in buffer_
  size_t scanned_ = 0;  // no line feed before this
  uint64_t number_ = 0;
  bool at_start_ = true;
  bool at_end_ = false;
  std::function<void(std::string_view)> observer_;
};

// Response bodies. An answer to a job with `echo` has the prompt in choice.text and, with logprobs,
// the prompt's tokens in front.
Json answer_body(const Job& job, const Answer& answer, std::string_view request_id);
Json error_body(const ApiError& error);

// What stands at the top-level `error` of a result line: expired, cancelled, lost.
struct LostError {
  std::string code;
  std::string message;
};

struct ResultLine {
  std::string id;  // "batch_req_..."
  std::string custom_id;
  std::string request_id;
  int status_code = 200;
  std::string body;        // JSON text of the response body, on one line; empty with `lost`
  std::string nightsweep;  // JSON text of timings and cost, on one line; may be empty
  std::optional<LostError> lost;
};
// One output line with its line feed. stable: without `nightsweep`, `created`, `id`, `request_id`.
std::string result_line(const ResultLine& result, bool stable);

// The `nightsweep` object. `ignored` (of the job) is listed in it unless empty.
Json timings_object(const Answer& answer, const std::vector<std::string>& ignored = {});

}  // namespace nightsweep
