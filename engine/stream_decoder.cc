#include "engine/tokenizer.h"
#include "engine/utf8.h"

namespace nightsweep {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string StreamDecoder::push(std::string_view bytes) {
  pending_ += bytes;
  std::string complete;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const size_t n_valid = valid_utf8_prefix(rest);
    complete += rest.substr(0, n_valid);
    rest.remove_prefix(n_valid);
    if (rest.empty()) break;
    const Utf8Unit unit = first_utf8_unit(rest);
    if (unit.kind == Utf8Kind::truncated) break;
    complete += kReplacement;
    rest.remove_prefix(unit.n_bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return complete;
}

std::string StreamDecoder::finish() {
  // What is pending is one truncated character.
  std::string rest(pending_.empty() ? std::string_view() : kReplacement);
  pending_.clear();
  return rest;
}

}  // namespace nightsweep
