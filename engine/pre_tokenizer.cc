#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/log.h"
#include "engine/utf8.h"

// White space as Unicode defines it, for use inside brackets. PCRE2's own \s counts U+180E, which
// the engine behind the published tokenizers does not.
#define SPACE "\\p{Z}\\t-\\r\\x{85}"
#define BLANKS               \
  "[" SPACE                  \
  "]*[\\r\\n]+"              \
  "|[" SPACE "]+(?![^" SPACE \
  "])"                       \
  "|[" SPACE "]+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORD(tail)                                                                      \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
  "*" tail
#define SYMBOLS " ?[^" SPACE "\\p{L}\\p{N}]+"

namespace nightsweep {

namespace {

// The regular expressions are those published in the families' tokenizer.json.
constexpr std::string_view kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d"
    "| ?\\p{L}+"
    "| ?\\p{N}+"
    "|" SYMBOLS "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+";
constexpr std::string_view kLlama3 = CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
    "|\\p{N}{1,3}"
    "|" SYMBOLS "[\\r\\n]*|" BLANKS;
constexpr std::string_view kQwen2 = CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
    "|\\p{N}"
    "|" SYMBOLS "[\\r\\n]*|" BLANKS;
constexpr std::string_view kQwen35 = CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+"
    "|\\p{N}"
    "| ?[^" SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS;
constexpr std::string_view kTekken =
    CASED_WORD("")
    "|\\p{N}"
    "|" SYMBOLS "[\\r\\n/]*|" BLANKS;
constexpr std::string_view kGpt4o =
    CASED_WORD(CONTRACTION "?")
    "|\\p{N}{1,3}"
    "|" SYMBOLS "[\\r\\n/]*|" BLANKS;
constexpr std::string_view kOneDigit = "\\p{N}";
constexpr std::string_view kThreeDigits = "\\p{N}{1,3}";
constexpr std::string_view kChineseAndKana =
    "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+";
constexpr std::string_view kDeepseekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS;

const std::vector<PreTokenizerRule>& rules() {
  static const std::vector<PreTokenizerRule> kTable = {
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"},
       .patterns = {kLlama3},
       .ignores_merges = true,
       .adds_bos = true},
      {.names = {"glm4", "chatglm-bpe"}, .patterns = {kLlama3}},
      {.names = {"qwen2", "deepseek-r1-qwen"}, .patterns = {kQwen2}, .normalizes_nfc = true},
      {.names = {"qwen35"}, .patterns = {kQwen35}, .normalizes_nfc = true},
      {.names = {"gpt-2"}, .patterns = {kGpt2}},
      {.names = {"smollm", "starcoder", "refact", "command-r"}, .patterns = {kOneDigit, kGpt2}},
      {.names = {"tekken"}, .patterns = {kTekken}, .ignores_merges = true, .adds_bos = true},
      // The vocabularies come from tiktoken, which looks a whole piece up before it merges.
      {.names = {"gpt-4o", "o200k", "llama4"}, .patterns = {kGpt4o}, .ignores_merges = true},
      {.names = {"deepseek-v3"}, .patterns = {kThreeDigits, kChineseAndKana, kDeepseekV3}},
  };
  return kTable;
}

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

const PreTokenizerRule* find_pre_tokenizer_rule(std::string_view name) {
  for (const PreTokenizerRule& rule : rules()) {
    if (std::ranges::find(rule.names, name) != rule.names.end()) return &rule;
  }
  return nullptr;
}

std::string known_pre_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const PreTokenizerRule& rule : rules()) {
    names.insert(names.end(), rule.names.begin(), rule.names.end());
  }
  std::ranges::sort(names);
  std::string list;
  for (std::string_view name : names) {
    if (!list.empty()) list += ", ";
    list += name;
  }
  return list;
}

struct PreTokenizer::Pattern {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  bool has_jit = false;

  explicit Pattern(std::string_view regex) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code.reset(pcre2_compile(
        reinterpret_cast<PCRE2_SPTR8>(regex.data()), regex.size(), PCRE2_UTF | PCRE2_UCP, &error,
        &offset, nullptr));
    if (!code) {
      fail(
          ErrorKind::internal, "pre-tokenizer pattern {} at {}: {}", regex, offset,
          pcre2_message(error));
    }
    const int jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    has_jit = jit == 0;
    if (!has_jit) say_once_that_jit_is_missing(jit);
  }

  // Appends the matches in `text`, which is well-formed, and what lies between them.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;
};

void PreTokenizer::Pattern::split(std::string_view text, std::vector<std::string_view>& pieces)
    const {
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, MatchContextDeleter> context(
      pcre2_match_context_create(nullptr));
  if (!data || !context) fail(ErrorKind::internal, "no memory for cutting text into pieces");
  // None of the patterns looks at a character more than a few times within one match.
  constexpr uint64_t kStepsPerByte = 32;
  constexpr uint64_t kMostSteps = 1U << 31U;
  pcre2_set_match_limit(
      context.get(),
      static_cast<uint32_t>(std::min(kMostSteps, 1'000'000 + kStepsPerByte * text.size())));

  const auto* subject = reinterpret_cast<PCRE2_SPTR8>(text.data());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
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

PreTokenizer::PreTokenizer(const PreTokenizerRule& rule) : rule_(rule) {
  for (std::string_view regex : rule.patterns) {
    patterns_.push_back(std::make_unique<Pattern>(regex));
  }
}

PreTokenizer::~PreTokenizer() = default;

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  pieces.clear();
  while (!text.empty()) {
    const size_t n_valid = valid_utf8_prefix(text);
    if (n_valid > 0) {
      const size_t first = pieces.size();
      patterns_.front()->split(text.substr(0, n_valid), pieces);
      for (size_t i = 1; i < patterns_.size(); ++i) {
        const std::vector<std::string_view> coarse(
            pieces.begin() + static_cast<ptrdiff_t>(first), pieces.end());
        pieces.resize(first);
        for (std::string_view piece : coarse)
          patterns_[i]->split(piece, pieces);
      }
      text.remove_prefix(n_valid);
    } else {
      const size_t n_bad = first_utf8_unit(text).n_bytes;
      pieces.push_back(text.substr(0, n_bad));
      text.remove_prefix(n_bad);
    }
  }
}

}  // namespace nightsweep
