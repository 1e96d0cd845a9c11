#include "runner/text_bench.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "engine/chat_template.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "runner/command.h"
#include "runner/model_source.h"
#include "runner/output.h"

namespace nightsweep {

namespace {

constexpr size_t kMegabyte = 1'000'000;
constexpr size_t kProseBytes = 8 * kMegabyte;
constexpr int kRounds = 3;  // the best of them counts

// The words are drawn so that the few hundred of them do not come in one order for ever.
constexpr std::array<std::string_view, 96> kWords = {
    "the",     "of",        "and",      "a",         "to",       "in",         "is",
    "was",     "that",      "it",       "for",       "on",       "with",       "as",
    "his",     "they",      "at",       "be",        "this",     "from",       "I",
    "have",    "or",        "by",       "one",       "had",      "not",        "but",
    "what",    "all",       "were",     "when",      "we",       "there",      "can",
    "an",      "your",      "which",    "their",     "said",     "if",         "do",
    "night",   "morning",   "machine",  "question",  "answer",   "memory",     "letter",
    "river",   "window",    "garden",   "language",  "children", "government", "science",
    "history", "mountain",  "distance", "together",  "always",   "beautiful",  "remember",
    "watched", "listening", "quietly",  "travelled", "written",  "understand", "important",
    "between", "through",   "another",  "nothing",   "perhaps",  "afternoon",  "conversation",
    "didn't",  "it's",      "they're",  "1984",      "12",       "London",     "Margaret",
    "Europe",  "American",  "however",  "although",  "because",  "experience", "development",
    "several", "kitchen",   "whispers", "lanterns",  "harbour"};

class Draws {
 public:
  // Knuth's 64-bit linear congruential generator: the same text on every machine.
  uint32_t below(uint32_t n) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>(state_ >> 33U) % n;
  }

 private:
  uint64_t state_ = 1;
};

std::string make_prose(size_t n_bytes) {
  Draws draws;
  std::string text;
  text.reserve(n_bytes + 64);
  while (text.size() < n_bytes) {
    const uint32_t n_words = 5 + draws.below(16);
    for (uint32_t i = 0; i < n_words; ++i) {
      std::string word(kWords[draws.below(kWords.size())]);
      if (i == 0 && word[0] >= 'a') word[0] = static_cast<char>(word[0] - 'a' + 'A');
      text += word;
      if (i + 1 < n_words) text += draws.below(12) == 0 ? ", " : " ";
    }
    text += draws.below(6) == 0 ? ".\n\n" : draws.below(8) == 0 ? "? " : ". ";
  }
  text.resize(n_bytes);
  return text;
}

std::string make_unbroken(size_t n_bytes) {
  Draws draws;
  std::string text;
  text.reserve(n_bytes + 16);
  while (text.size() < n_bytes)
    text += kWords[draws.below(42)];
  text.resize(n_bytes);
  return text;
}

// Seconds of this thread on a core, so that other programs do not count.
double core_seconds() {
  std::timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct TextFigures {
  std::string name;
  size_t n_bytes = 0;
  size_t n_tokens = 0;
  double seconds = 0;

  double megabytes_per_s() const { return static_cast<double>(n_bytes) / kMegabyte / seconds; }
};

TextFigures measure(const Tokenizer& tokenizer, std::string name, const std::string& text) {
  TextFigures figures{.name = std::move(name), .n_bytes = text.size()};
  for (int round = 0; round < kRounds; ++round) {
    const double begun = core_seconds();
    figures.n_tokens = tokenizer.encode(text, false, false).size();
    const double taken = core_seconds() - begun;
    if (round == 0 || taken < figures.seconds) figures.seconds = taken;
  }
  return figures;
}

std::string figures_text(const TextFigures& figures, bool json) {
  if (json) {
    return Json(Json::Object{
                    {"text", figures.name},
                    {"bytes", figures.n_bytes},
                    {"tokens", figures.n_tokens},
                    {"seconds", figures.seconds},
                    {"mb_per_s", figures.megabytes_per_s()}})
               .dump() +
           "\n";
  }
  return format(
      "{:20} {:6.1f} MB  {:9} tokens  {:7.3f} s  {:7.1f} MB/s\n", figures.name,
      static_cast<double>(figures.n_bytes) / kMegabyte, figures.n_tokens, figures.seconds,
      figures.megabytes_per_s());
}

Json short_chat() {
  const auto message = [](const char* role, const char* content) {
    return Json(Json::Object{{"role", role}, {"content", content}});
  };
  Json variables = Json::Object{};
  variables.set(
      "messages",
      Json::Array{
          message("user", "What did people use for light before there was electricity?"),
          message("assistant", "Candles, oil lamps and, later, gas."),
          message("user", "Name three places where gas light can still be seen.")});
  variables.set("add_generation_prompt", true);
  variables.set("bos_token", "<s>");
  variables.set("eos_token", "</s>");
  return variables;
}

// Calls `work` for about a second; calls a second.
template <typename Work>
double rate_of(const Work& work) {
  constexpr double kSeconds = 1.0;
  work();
  uint64_t n = 0;
  const double begun = core_seconds();
  double taken = 0;
  while (taken < kSeconds) {
    for (int i = 0; i < 100; ++i)
      work();
    n += 100;
    taken = core_seconds() - begun;
  }
  return static_cast<double>(n) / taken;
}

void write_rate(const char* name, double chats_per_s, bool json) {
  if (json) {
    Stdout().write(Json(Json::Object{{"work", name}, {"chats_per_s", chats_per_s}}).dump() + "\n");
  } else {
    Stdout().write(format("{:20} {:10.0f} chats/s\n", name, chats_per_s));
  }
}

ChatTemplate compile(const std::string& source, const std::string& name) {
  try {
    return ChatTemplate::compile(source);
  } catch (const TemplateError& error) {
    fail(ErrorKind::model, "{}: the chat template is not understood: {}", name, error.what());
  }
}

}  // namespace

int bench_tokenize(const Arguments& arguments) {
  const CommonOptions options = begin_command(arguments);
  const ModelRef model = chosen_model(options);
  const auto tokenizer = Tokenizer::from_gguf(GgufModel::open(model.path));
  std::vector<std::pair<std::string, std::string>> texts;
  if (auto path = arguments.find("text-file")) {
    texts.emplace_back(*path, read_whole_file(*path, ErrorKind::input));
  } else {
    texts.emplace_back("prose", make_prose(kProseBytes));
    texts.emplace_back("no spaces", make_unbroken(kMegabyte));
    texts.emplace_back("no spaces, twice", make_unbroken(2 * kMegabyte));
    texts.emplace_back("one letter", std::string(kMegabyte, 'a'));
  }
  for (const auto& [name, text] : texts)
    Stdout().write(figures_text(measure(*tokenizer, name, text), options.json));
  return 0;
}

int bench_render(const Arguments& arguments) {
  const CommonOptions options = begin_command(arguments);
  std::unique_ptr<Tokenizer> tokenizer;
  std::string source;
  std::string name;
  if (auto path = arguments.find("template")) {
    name = *path;
    source = read_whole_file(name, ErrorKind::input);
  } else {
    const GgufModel model = GgufModel::open(chosen_model(options).path);
    name = model.name();
    source = model.require_string("tokenizer.chat_template");
    tokenizer = Tokenizer::from_gguf(model);
  }
  const ChatTemplate chat_template = compile(source, name);
  const Json variables = short_chat();
  const int64_t now = std::time(nullptr);
  const auto render = [&] {
    try {
      return chat_template.render(variables, now);
    } catch (const TemplateError& error) {
      fail(ErrorKind::model, "{}: the template refuses a short chat: {}", name, error.what());
    }
  };
  write_rate("render", rate_of(render), options.json);
  if (tokenizer) {
    write_rate(
        "render and encode", rate_of([&] { return tokenizer->encode(render(), false); }),
        options.json);
  }
  return 0;
}

}  // namespace nightsweep
