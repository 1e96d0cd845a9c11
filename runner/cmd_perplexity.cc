#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "runner/command.h"
#include "runner/model_source.h"
#include "runner/output.h"
#include "runner/text_input.h"

namespace nightsweep {

namespace {

constexpr uint32_t kDefaultWindow = 512;

// -log of the softmax probability of `token`.
double negative_log_likelihood(const float* logits, uint32_t n_vocab, uint32_t token) {
  double largest = *std::max_element(logits, logits + n_vocab);
  double sum = 0;
  for (uint32_t i = 0; i < n_vocab; ++i)
    sum += std::exp(static_cast<double>(logits[i]) - largest);
  return largest + std::log(sum) - static_cast<double>(logits[token]);
}

struct Mean {
  double sum = 0;
  uint64_t n = 0;
  void add(double value) {
    sum += value;
    ++n;
  }
  double value() const { return sum / static_cast<double>(n); }
};

struct Perplexity {
  uint64_t n_tokens = 0;
  uint64_t n_windows = 0;
  Mean all;
  Mean second_half;
};

Perplexity measure(Engine& engine, std::vector<uint32_t> ids, uint32_t window) {
  const Tokenizer& tokenizer = engine.tokenizer();
  bool wants_bos = tokenizer.adds_bos() && tokenizer.bos() >= 0;
  uint32_t n_vocab = engine.config().n_vocab;
  Perplexity result;
  result.n_windows = ids.size() / window;
  for (uint64_t w = 0; w < result.n_windows; ++w) {
    auto begin = ids.begin() + static_cast<std::ptrdiff_t>(w * window);
    std::vector<uint32_t> tokens(begin, begin + window);
    // Every window begins as a text does.
    if (wants_bos) tokens[0] = static_cast<uint32_t>(tokenizer.bos());
    engine.logits(tokens, 0, [&](uint32_t first, uint32_t n_rows, const float* logits) {
      for (uint32_t r = 0; r < n_rows && first + r + 1 < window; ++r) {
        uint32_t position = first + r + 1;
        double nll =
            negative_log_likelihood(logits + size_t{r} * n_vocab, n_vocab, tokens[position]);
        result.all.add(nll);
        if (position >= window / 2) result.second_half.add(nll);
      }
    });
    result.n_tokens += window;
    log_debug(
        "window {} of {}: perplexity so far {:.5f}", w + 1, result.n_windows,
        std::exp(result.all.value()));
  }
  return result;
}

int perplexity(const Invocation& invocation) {
  CommonOptions options = begin_command(invocation.arguments);
  const std::string& file = invocation.arguments.operands().front();
  auto model = PromptModel::open(chosen_model(options), options.context_tokens);
  std::string text = read_text_input(file);
  uint32_t window = options.context_tokens;
  if (window == 0) window = std::min(kDefaultWindow, model->context_tokens());
  if (window < 2) fail(ErrorKind::usage, "--context: expected at least 2 tokens");

  std::vector<uint32_t> ids = model->tokenizer().encode(text, false, false);
  if (model->tokenizer().adds_bos() && model->tokenizer().bos() >= 0) {
    ids.insert(ids.begin(), static_cast<uint32_t>(model->tokenizer().bos()));
  }
  if (ids.size() < window) {
    fail(
        ErrorKind::input, "{}: expected at least one window of {} tokens, found {} tokens", file,
        window, ids.size());
  }
  // One window is all the cache there has to be.
  options.context_tokens = window;
  auto engine = open_engine(model->gguf(), options);
  Perplexity result = measure(*engine, std::move(ids), window);
  double ppl = std::exp(result.all.value());
  double ppl_second_half = std::exp(result.second_half.value());
  if (options.json) {
    Json json = Json::Object{};
    json.set("tokens", result.n_tokens);
    json.set("windows", result.n_windows);
    json.set("mean_nll", result.all.value());
    json.set("ppl", ppl);
    json.set("ppl_second_half", ppl_second_half);
    Stdout().write(json.dump() + "\n");
  } else {
    Stdout().write(format(
        "{} tokens in {} windows of {}\nmean negative log-likelihood {:.6f}\nperplexity {:.5f}\n"
        "perplexity over second halves {:.5f}\n",
        result.n_tokens, result.n_windows, window, result.all.value(), ppl, ppl_second_half));
  }
  return 0;
}

}  // namespace

Command make_perplexity_command() {
  return {
      .name = "perplexity",
      .summary = "how well a model predicts a text",
      .usage = "--model MODEL FILE [--context N] [options]",
      .example = "nightsweep perplexity --model model.gguf text.txt --context 1024 --json",
      .options = join({engine_options(), {json_option()}, general_options()}),
      .min_positionals = 1,
      .max_positionals = 1,
      .run = perplexity};
}

}  // namespace nightsweep
