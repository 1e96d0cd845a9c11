#include "engine/pre_tokenizer_rules.h"

#include <algorithm>

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

// Deepseek's first families: cased letters, punctuation and the blocks of CJK each apart.
constexpr std::string_view kNewline = "[\\r\\n]";
constexpr std::string_view kCasedLetters =
    "[" SPACE
    "]?["
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}"
    "\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}"
    "\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}"
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"
    "\\x{1E900}-\\x{1E943}"
    "]+";
constexpr std::string_view kWidePunctuation =
    "[" SPACE
    "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+";
constexpr std::string_view kBlanksAtEnd = "[" SPACE "]+\\z";
constexpr std::string_view kLetters = "[" SPACE "]?\\p{L}+";
constexpr std::string_view kPunctuation = "[" SPACE "]?\\p{P}+";
constexpr std::string_view kChineseAndHangul =
    "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+";
// Falcon: runs of punctuation, then gpt-2, and then digits among the characters that bytes are
// written as, of which six bytes beside 0 to 9 count as numbers too. What punctuation is was
// settled by Unicode 8 there: later punctuation is none, and two characters have left it since.
#define PUNCTUATION_SINCE_UNICODE_8                                                                \
  "\\x{61D}\\x{9FD}\\x{A76}\\x{C77}\\x{C84}\\x{1B7D}\\x{1B7E}\\x{2E43}-\\x{2E4F}"                  \
  "\\x{2E52}-\\x{2E5D}\\x{10EAD}\\x{10F55}-\\x{10F59}\\x{10F86}-\\x{10F89}\\x{1144B}-\\x{1144F}"   \
  "\\x{1145A}\\x{1145B}\\x{1145D}\\x{11660}-\\x{1166C}\\x{116B9}\\x{1183B}\\x{11944}-\\x{11946}"   \
  "\\x{119E2}\\x{11A3F}-\\x{11A46}\\x{11A9A}-\\x{11A9C}\\x{11A9E}-\\x{11AA2}\\x{11C41}-\\x{11C45}" \
  "\\x{11C70}\\x{11C71}\\x{11EF7}\\x{11EF8}\\x{11FFF}\\x{12FF1}\\x{12FF2}\\x{16E97}-\\x{16E9A}"    \
  "\\x{16FE2}\\x{1E95E}\\x{1E95F}"
constexpr std::string_view kAnyPunctuation =
    "(?:(?![" PUNCTUATION_SINCE_UNICODE_8 "])[!-/:-@\\[-`{-~\\p{P}\\x{166D}\\x{111C9}])+";
constexpr std::string_view kNumberBytes = "[0-9\\xB2\\xB3\\xB9\\xBC-\\xBE]+";
constexpr std::string_view kThreeDigitBytes = "[0-9][0-9][0-9]";

const std::vector<PreTokenizerRule>& rules() {
  static const std::vector<PreTokenizerRule> kTable = {
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"},
       .patterns = {kLlama3},
       .ignores_merges = true,
       .adds_bos = true},
      {.names = {"glm4", "chatglm-bpe", "dbrx", "smaug-bpe"}, .patterns = {kLlama3}},
      {.names = {"qwen2", "deepseek-r1-qwen"}, .patterns = {kQwen2}, .normalizes_nfc = true},
      {.names = {"qwen35"}, .patterns = {kQwen35}, .normalizes_nfc = true},
      {.names = {"gpt-2", "phi-2"}, .patterns = {kGpt2}},
      {.names = {"gpt-neox", "mpt", "olmo"}, .patterns = {kGpt2}, .normalizes_nfc = true},
      {.names = {"smollm", "starcoder", "refact"}, .patterns = {kOneDigit, kGpt2}},
      {.names = {"command-r"}, .patterns = {kOneDigit, kGpt2}, .normalizes_nfc = true},
      {.names = {"tekken"}, .patterns = {kTekken}, .ignores_merges = true, .adds_bos = true},
      // The vocabularies come from tiktoken, which looks a whole piece up before it merges.
      {.names = {"gpt-4o", "o200k", "llama4"}, .patterns = {kGpt4o}, .ignores_merges = true},
      {.names = {"falcon"},
       .patterns = {kAnyPunctuation, kGpt2},
       .byte_patterns = {kNumberBytes, kThreeDigitBytes}},
      {.names = {"deepseek-llm"},
       .patterns =
           {kNewline, kCasedLetters, kWidePunctuation, kBlanksAtEnd, kChineseAndHangul, kOneDigit}},
      {.names = {"deepseek-coder"},
       .patterns = {kNewline, kLetters, kPunctuation, kChineseAndHangul, kOneDigit}},
      {.names = {"deepseek-v3"}, .patterns = {kThreeDigits, kChineseAndKana, kDeepseekV3}},
  };
  return kTable;
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

std::string_view pre_tokenizer_of_architecture(std::string_view architecture) {
  if (architecture == "gptneox") return "gpt-neox";
  if (architecture == "starcoder2") return "starcoder";
  for (std::string_view same : {"mpt", "falcon", "starcoder", "refact", "command-r"}) {
    if (architecture == same) return same;
  }
  return "";
}

}  // namespace nightsweep
