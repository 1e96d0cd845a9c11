#include "runner/tokenize_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "runner/text_input.h"

namespace nightsweep {

namespace {

constexpr size_t kLongestLine = size_t{16} << 20U;
constexpr size_t kWriteBytes = size_t{64} << 10U;

// Where a line stands, for messages.
struct LinePlace {
  std::string_view file;
  size_t number = 0;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail(ErrorKind::input, "{}:{}: {}", file, number, format(text, std::forward<Args>(args)...));
  }
};

Json parse_line(std::string_view line, const LinePlace& place) {
  try {
    Json object = Json::parse(line);
    if (!object.is_object()) {
      place.refuse("expected a JSON object, found {}", object.kind_text());
    }
    return object;
  } catch (const JsonError& error) {
    place.refuse("expected JSON, found an error at byte {}: {}", error.offset(), error.what());
  }
}

void refuse_other_keys(
    const Json& object,
    std::initializer_list<std::string_view> known,
    const LinePlace& place) {
  for (const auto& [key, value] : object.as_object()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    std::string list;
    for (std::string_view name : known)
      list += (list.empty() ? "" : ", ") + std::string(name);
    place.refuse("{}: expected no other field than {}, found this one", key, list);
  }
}

bool find_flag(const Json& object, std::string_view key, bool otherwise, const LinePlace& place) {
  const Json* value = object.find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) {
    place.refuse("{}: expected true or false, found {}", key, value->kind_text());
  }
  return value->as_bool();
}

Json encode_line(const Tokenizer& tokenizer, const Json& object, const LinePlace& place) {
  refuse_other_keys(object, {"text", "add_special", "parse_special"}, place);
  const Json* text = object.find("text");
  if (text == nullptr || !text->is_string()) {
    place.refuse(
        "text: expected a string, found {}", text == nullptr ? "no such field" : text->kind_text());
  }
  const bool add_special = find_flag(object, "add_special", true, place);
  const bool parse_special = find_flag(object, "parse_special", false, place);
  Json::Array ids;
  for (uint32_t id : tokenizer.encode(text->as_string(), add_special, parse_special)) {
    ids.emplace_back(id);
  }
  return Json(Json::Object{{"ids", std::move(ids)}});
}

Json decode_line(
    const Tokenizer& tokenizer,
    const Json& object,
    bool skip_special,
    const LinePlace& place) {
  refuse_other_keys(object, {"ids"}, place);
  const Json* list = object.find("ids");
  if (list == nullptr || !list->is_array()) {
    place.refuse(
        "ids: expected an array of token ids, found {}",
        list == nullptr ? "no such field" : list->kind_text());
  }
  std::vector<uint32_t> ids;
  for (const Json& element : list->as_array()) {
    int64_t id = -1;
    if (!element.to_integer(id) || id < 0 || id >= tokenizer.n_tokens()) {
      place.refuse(
          "ids[{}]: expected a token id from 0 to {}, found {}", ids.size(),
          tokenizer.n_tokens() - 1, element.kind_text());
    }
    ids.push_back(static_cast<uint32_t>(id));
  }
  StreamDecoder decoder;
  std::string text = decoder.push(tokenizer.decode(ids, skip_special));
  text += decoder.finish();
  return Json(Json::Object{{"text", std::move(text)}});
}

}  // namespace

void write_to_stdout(std::string_view data) {
  write_fully(STDOUT_FILENO, data, "standard output");
}

void tokenize_lines(
    const Tokenizer& tokenizer,
    const TokenizeOptions& options,
    std::istream& input,
    const WriteData& write) {
  const std::string file = options.input == "-" ? "standard input" : options.input;
  std::string pending;
  LinePlace place{file};
  try {
    for (std::string raw; std::getline(input, raw);) {
      ++place.number;
      if (raw.size() > kLongestLine) {
        place.refuse("expected at most {} bytes in a line, found {}", kLongestLine, raw.size());
      }
      const std::string_view line = line_content(raw, place.number == 1);
      if (line.empty()) continue;
      const Json object = parse_line(line, place);
      const Json answer = options.decode
                              ? decode_line(tokenizer, object, options.skip_special, place)
                              : encode_line(tokenizer, object, place);
      pending += answer.dump() + "\n";
      if (pending.size() >= kWriteBytes) {
        write(pending);
        pending.clear();
      }
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::input) write(pending);
    throw;
  }
  write(pending);
  if (input.bad()) fail_errno(ErrorKind::input, errno, file);
}

int tokenize_command(const TokenizeOptions& options, const WriteData& write) {
  if (options.decode && options.text) {
    fail(
        ErrorKind::usage, "--decode: expected lines with ids, found --text; leave one of them out");
  }
  if (options.skip_special && !options.decode) {
    fail(ErrorKind::usage, "--skip-special: expected with --decode, found without");
  }
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::from_gguf(GgufModel::open(options.model));
  if (options.text) {
    Json::Array ids;
    for (uint32_t id : tokenizer->encode(*options.text, true, false))
      ids.emplace_back(id);
    write(Json(Json::Object{{"ids", std::move(ids)}}).dump() + "\n");
    return 0;
  }
  if (options.input == "-") {
    tokenize_lines(*tokenizer, options, std::cin, write);
    return 0;
  }
  std::ifstream file(options.input, std::ios::binary);
  if (!file) fail_errno(ErrorKind::input, errno, options.input);
  tokenize_lines(*tokenizer, options, file, write);
  return 0;
}

}  // namespace nightsweep
