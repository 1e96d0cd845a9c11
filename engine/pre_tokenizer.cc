#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/log.h"
#include "engine/utf8.h"

namespace nightsweep {

namespace {

std::string pcre2_message(int code) {
  PCRE2_UCHAR8 text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

void say_once_that_jit_is_missing(int code) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  log_warning(
      "PCRE2 cannot compile regular expressions to machine code here ({}): text is cut into "
      "tokens several times more slowly, with the same result",
      pcre2_message(code));
}

}  // namespace

struct PreTokenizer::Pattern {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  bool has_jit = false;

  Pattern(std::string_view regex, uint32_t options) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code.reset(pcre2_compile(
        reinterpret_cast<PCRE2_SPTR8>(regex.data()), regex.size(), options, &error, &offset,
        nullptr));
    if (!code) {
      fail(
          ErrorKind::internal, "pre-tokenizer pattern {} at {}: {}", regex, offset,
          pcre2_message(error));
    }
    const int jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    has_jit = jit == 0;
    if (!has_jit) say_once_that_jit_is_missing(jit);
  }

  // Appends, for each text in turn, the matches in it and what lies between them. A pattern over
  // characters needs texts that are well-formed.
  void split(const std::vector<std::string_view>& texts, std::vector<std::string_view>& pieces)
      const;
};

void PreTokenizer::Pattern::split(
    const std::vector<std::string_view>& texts,
    std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, MatchContextDeleter> context(
      pcre2_match_context_create(nullptr));
  if (!data || !context) fail(ErrorKind::internal, "no memory for cutting text into pieces");
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  for (std::string_view text : texts) {
    // None of the patterns looks at a character more than a few times within one match.
    constexpr uint64_t kStepsPerByte = 32;
    constexpr uint64_t kMostSteps = 1U << 31U;
    pcre2_set_match_limit(
        context.get(),
        static_cast<uint32_t>(std::min(kMostSteps, 1'000'000 + kStepsPerByte * text.size())));
    const auto* subject = reinterpret_cast<PCRE2_SPTR8>(text.data());
    size_t begin = 0;  // of what no piece covers yet
    while (begin < text.size()) {
      int n = PCRE2_ERROR_JIT_STACKLIMIT;
      if (has_jit) {
        n = pcre2_jit_match(
            code.get(), subject, text.size(), begin, PCRE2_NO_UTF_CHECK, data.get(), context.get());
      }
      // The interpreter keeps its state on the heap, where the machine code's small stack is short.
      if (n == PCRE2_ERROR_JIT_STACKLIMIT) {
        n = pcre2_match(
            code.get(), subject, text.size(), begin, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(),
            context.get());
      }
      if (n == PCRE2_ERROR_NOMATCH) break;
      if (n < 0) {
        fail(
            ErrorKind::input, "text of {} bytes: cutting it into pieces stopped at byte {}: {}",
            text.size(), begin, pcre2_message(n));
      }
      if (bounds[0] > begin) pieces.push_back(text.substr(begin, bounds[0] - begin));
      pieces.push_back(text.substr(bounds[0], bounds[1] - bounds[0]));
      begin = bounds[1];
    }
    if (begin < text.size()) pieces.push_back(text.substr(begin));
  }
}

PreTokenizer::PreTokenizer(const PreTokenizerRule& rule) : rule_(rule) {
  for (std::string_view regex : rule.patterns) {
    patterns_.push_back(std::make_unique<Pattern>(regex, PCRE2_UTF | PCRE2_UCP));
  }
  for (std::string_view regex : rule.byte_patterns) {
    byte_patterns_.push_back(std::make_unique<Pattern>(regex, 0));
  }
}

PreTokenizer::~PreTokenizer() = default;

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  pieces.clear();
  std::vector<std::string_view> coarse;
  const auto refine = [&](size_t first, const Pattern& pattern) {
    coarse.assign(pieces.begin() + static_cast<ptrdiff_t>(first), pieces.end());
    pieces.resize(first);
    pattern.split(coarse, pieces);
  };
  while (!text.empty()) {
    const size_t n_valid = valid_utf8_prefix(text);
    const size_t first = pieces.size();
    const size_t n_bad = n_valid == 0 ? first_utf8_unit(text).n_bytes : 0;
    pieces.push_back(text.substr(0, n_valid + n_bad));
    if (n_valid > 0) {
      for (const auto& pattern : patterns_)
        refine(first, *pattern);
    }
    for (const auto& pattern : byte_patterns_)
      refine(first, *pattern);
    text.remove_prefix(n_valid + n_bad);
  }
}

}  // namespace nightsweep
