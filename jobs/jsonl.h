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

struct LineOptions {
  std::optional<Endpoint> endpoint;                    // --endpoint: for lines without url
  std::vector<std::pair<std::string, Json>> defaults;  // --set: for lines that do not set the key
  bool lenient = false;                                // unknown parameters are listed, not refused
  std::function<int64_t()> draw_seed;                  // for lines without a seed
};

// Why a line is refused. `field` is a path such as "body.temperature"; the message reads
// "expected ..., found ...".
struct LineError {
  uint64_t line = 0;
  std::string field;
  std::string message;
  std::string custom_id;  // as far as it could be read, else line-N
  std::string code;       // unsupported_parameter, unsupported_value, unknown_parameter, ...
  std::string text(std::string_view file) const;  // FILE:N: field: message
  ApiError api_error() const;
};

// `text`: one line without its line end, not blank.
std::variant<Job, LineError>
parse_line(std::string_view text, uint64_t line, const LineOptions& options);

// A job at rest, and back. Everything that decides the answer is in it.
std::string job_to_text(const Job& job);
Job job_from_text(std::string_view text);

// Reads lines from a descriptor in pieces: strips a BOM at the start, CR before LF, skips blank
// lines, counts them. A line beyond max_line_bytes is cut and flagged without being kept.
class LineReader {
 public:
  LineReader(int fd, std::string path, size_t max_line_bytes);
  struct Line {
    std::string_view text;  // valid until the next call
    uint64_t number = 0;
    bool too_long = false;
  };
  // nullopt at the end. Throws Error(input) when the file cannot be read.
  std::optional<Line> next();
  // Called with every byte read, in order (to hash the content).
  void on_bytes(std::function<void(std::string_view)> observer) { observer_ = std::move(observer); }

 private:
  bool fill();
  int fd_;
  std::string path_;
  size_t max_line_bytes_;
  std::string buffer_;
  size_t start_ = 0;
  uint64_t number_ = 0;
  bool at_end_ = false;
  std::function<void(std::string_view)> observer_;
};

// Response bodies.
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
  std::string body;        // JSON text of the response body; empty with `lost`
  std::string nightsweep;  // JSON text of timings and cost; may be empty
  std::optional<LostError> lost;
};
// One output line with its line feed. stable: without `nightsweep`, `created`, `id`, `request_id`.
std::string result_line(const ResultLine& result, bool stable);

// The `nightsweep` object.
Json timings_object(const Answer& answer);

}  // namespace nightsweep
