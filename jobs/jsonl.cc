// One line to one job: which of the three forms it has, its id, its endpoint, its body.
#include "jobs/jsonl.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/format.h"
#include "jobs/field.h"
#include "jobs/parameters.h"
#include "jobs/utf8.h"

namespace nightsweep {

namespace {

constexpr const char* kSetPrefix = "--set ";
constexpr const char* kBodyPrefix = "body.";

struct Url {
  std::string_view url;
  Endpoint endpoint;
};
constexpr std::array<Url, 4> kUrls = {{
    {"/v1/chat/completions", Endpoint::chat},
    {"/v1/completions", Endpoint::completions},
    {"/chat/completions", Endpoint::chat},  // Azure
    {"/completions", Endpoint::completions},
}};

bool is_text_key(std::string_view key) {
  return key == "messages" || key == "prompt";
}

Refusal not_json(const std::string& what) {
  return {"", format("expected a JSON object, found {}", what), code::kInvalidJson};
}

Json parse_strictly(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const JsonError& error) {
    // The parser quotes what it read last: of a long string, all of it.
    std::string what = error.what();
    constexpr std::string_view kLastRead = "; last read: '";
    constexpr size_t kTailBytes = 60;
    if (size_t at = what.find(kLastRead); at != std::string::npos) {
      size_t begin = at + kLastRead.size();
      if (what.size() - begin > kTailBytes) {
        size_t cut = what.size() - kTailBytes;
        while (cut < what.size() && (static_cast<unsigned char>(what[cut]) & 0xC0) == 0x80)
          ++cut;
        what = what.substr(0, begin) + "..." + what.substr(cut);
      }
    }
    constexpr size_t kLongestText = 240;
    std::string place = error.offset() > 0 ? format(" at byte {}", error.offset() + 1) : "";
    throw not_json(format("an error{}: {}", place, printable(what, kLongestText)));
  }
}

// Members of the line itself, for lines with a body.
struct Envelope {
  const Json* body = nullptr;
  const Json* method = nullptr;
  const Json* url = nullptr;
};

class LineParser {
 public:
  LineParser(uint64_t line, const LineOptions& options) : options_(options) {
    job_.line = line;
    job_.custom_id = format("line-{}", line);
  }

  const std::string& custom_id() const { return job_.custom_id; }

  Job parse(std::string_view text) {
    Json root = parse_strictly(text);
    if (!root.is_object()) throw not_json(found_text(root));
    read_custom_id(root);
    Envelope envelope = find_envelope(root);
    bool is_enveloped = envelope.body || envelope.method || envelope.url;
    if (is_enveloped) {
      read_enveloped(root, envelope);
    } else {
      read_plain(root);
    }
    return std::move(job_);
  }

 private:
  static const Json* present(const Json& object, std::string_view key) {
    const Json* value = object.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  static Envelope find_envelope(const Json& root) {
    return {present(root, "body"), present(root, "method"), present(root, "url")};
  }

  void read_custom_id(const Json& root) {
    const Json* custom_id = present(root, "custom_id");
    const Json* id = present(root, "id");
    if (custom_id != nullptr) job_.custom_id = Field("custom_id", *custom_id).string();
    if (id == nullptr) return;
    if (custom_id != nullptr) {
      throw Refusal{"id", "expected either custom_id or id, found both", code::kInvalidValue};
    }
    job_.custom_id = Field("id", *id).string();
  }

  void read_enveloped(const Json& root, const Envelope& envelope) {
    for (const auto& [key, value] : root.as_object()) {
      static constexpr std::array<std::string_view, 5> kKnown = {
          "custom_id", "id", "method", "url", "body"};
      if (value.is_null() || std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end()) continue;
      if (!options_.lenient) {
        throw Refusal{
            key_text(key),
            format(
                "expected custom_id, method, url and body, found \"{}\" (a parameter belongs into "
                "body)",
                key_text(key)),
            code::kUnknownParameter};
      }
      job_.ignored.push_back(key);
    }
    if (envelope.method != nullptr) {
      Field method("method", *envelope.method);
      if (method.string() != "POST") method.refuse(code::kUnsupportedValue, "\"POST\"");
    }
    std::optional<Endpoint> endpoint = options_.endpoint;
    if (envelope.url != nullptr) endpoint = read_url(Field("url", *envelope.url));
    if (envelope.body == nullptr) {
      throw Refusal{"body", "expected an object, found nothing", code::kMissing};
    }
    Field("body", *envelope.body).object();
    read_body(*envelope.body, kBodyPrefix, endpoint);
  }

  void read_plain(const Json& root) { read_body(root, "", options_.endpoint); }

  static Endpoint read_url(const Field& url) {
    for (const Url& known : kUrls) {
      if (url.string() == known.url) return known.endpoint;
    }
    url.refuse(
        code::kUnsupportedValue,
        "\"/v1/chat/completions\" or \"/v1/completions\" (embeddings, responses and other "
        "endpoints are not supported)");
  }

  void read_body(const Json& body, std::string_view prefix, std::optional<Endpoint> endpoint) {
    bool is_plain = prefix.empty();
    job_.endpoint = endpoint_of(body, prefix, endpoint);
    std::vector<BodyField> fields;
    std::unordered_set<std::string_view> identities;
    for (const auto& [key, value] : body.as_object()) {
      if (is_plain && (key == "id" || key == "custom_id")) continue;
      if (value.is_null()) continue;
      identities.insert(parameter_identity(key));
      fields.push_back({key, Field(format("{}{}", prefix, key_text(key)), value)});
    }
    // The last of equal defaults wins, as the last option of a command line does.
    std::unordered_set<std::string_view> seen;
    for (auto it = options_.defaults.rbegin(); it != options_.defaults.rend(); ++it) {
      const auto& [key, value] = *it;
      Field field(format("{}{}", kSetPrefix, key_text(key)), value);
      if (is_text_key(key)) field.refuse(code::kInvalidValue, "a parameter other than the text");
      if (identities.count(parameter_identity(key)) == 0 && seen.insert(key).second) {
        fields.push_back({key, field});
      }
    }
    bool has_seed = read_parameters(fields, options_.lenient, job_);
    if (!has_seed && options_.draw_seed) job_.parameters.seed = options_.draw_seed();
  }

  // Checks that the one text which the endpoint needs is there, and not the other.
  static Endpoint
  endpoint_of(const Json& body, std::string_view prefix, std::optional<Endpoint> endpoint) {
    bool has_messages = present(body, "messages") != nullptr;
    bool has_prompt = present(body, "prompt") != nullptr;
    auto path = [&](const char* key) { return format("{}{}", prefix, key); };
    if (has_messages && has_prompt) {
      throw Refusal{
          path("prompt"), "expected either messages or prompt, found both", code::kInvalidValue};
    }
    if (!has_messages && !has_prompt && !endpoint) {
      bool is_plain = prefix.empty();
      throw Refusal{
          is_plain ? "" : "body",
          format(
              "expected {}messages (a chat) or prompt (a completion), found neither",
              is_plain ? "body, " : ""),
          code::kMissing};
    }
    Endpoint form = has_messages ? Endpoint::chat : Endpoint::completions;
    if (!endpoint) return form;
    if ((!has_messages && !has_prompt) || *endpoint != form) {
      bool is_chat = *endpoint == Endpoint::chat;
      const char* missing = is_chat ? "messages" : "prompt";
      const char* found = has_messages ? "messages" : has_prompt ? "prompt" : "nothing";
      throw Refusal{
          path(missing),
          format("expected {} for {}, found {}", missing, endpoint_url(*endpoint), found),
          code::kMissing};
    }
    return *endpoint;
  }

  const LineOptions& options_;
  Job job_;
};

}  // namespace

const char* endpoint_url(Endpoint endpoint) {
  return endpoint == Endpoint::chat ? "/v1/chat/completions" : "/v1/completions";
}

std::variant<Job, LineError>
parse_line(std::string_view text, uint64_t line, const LineOptions& options) {
  LineParser parser(line, options);
  try {
    return parser.parse(text);
  } catch (const Refusal& refusal) {
    return LineError{
        .line = line,
        .field = refusal.field,
        .message = refusal.message,
        .custom_id = parser.custom_id(),
        .code = refusal.code};
  }
}

std::optional<std::string> default_complaint(const std::string& key, const Json& value) {
  LineOptions options;
  options.defaults.emplace_back(key, value);
  std::optional<std::string> complaint;
  for (const char* line :
       {R"({"messages":[{"role":"user","content":"x"}]})", R"({"prompt":"x"})"}) {
    auto parsed = parse_line(line, 1, options);
    const auto* error = std::get_if<LineError>(&parsed);
    if (error == nullptr) return std::nullopt;
    if (!complaint) complaint = error->message;
  }
  return complaint;
}

LineError line_too_long(uint64_t line, size_t max_line_bytes) {
  return {
      .line = line,
      .field = "",
      .message = format(
          "expected a line of at most {} bytes, found a longer one (raise --max-line)",
          max_line_bytes),
      .custom_id = format("line-{}", line),
      .code = code::kLineTooLong};
}

std::string LineError::text(std::string_view file) const {
  if (field.empty()) return format("{}:{}: {}", file, line, message);
  return format("{}:{}: {}: {}", file, line, field, message);
}

ApiError LineError::api_error() const {
  std::string_view param = field;
  for (std::string_view prefix : {std::string_view(kSetPrefix), std::string_view(kBodyPrefix)}) {
    if (param.substr(0, prefix.size()) == prefix) param.remove_prefix(prefix.size());
  }
  return {
      .status_code = code == code::kModelNotFound ? 404 : 400,
      .message = param.empty() ? message : format("{}: {}", param, message),
      .param = std::string(param),
      .code = code};
}

}  // namespace nightsweep
