// An engine over a tiny model in a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kernels/device.h"
#include "support/cases.h"
#include "support/temporary_folder.h"
#include "support/test_device.h"
#include "support/tiny_model.h"

namespace nightsweep {

inline std::shared_ptr<const GgufModel> open_gguf(const std::string& path) {
  return std::make_shared<const GgufModel>(GgufModel::open(path));
}

inline std::unique_ptr<Engine>
open_engine(const std::string& path, const CpuOptions& cpu, const EngineOptions& options) {
  return Engine::open(open_gguf(path), make_cpu_device(cpu), options);
}

// The same on the device of a spec; a GPU's budget is what is free.
inline std::unique_ptr<Engine>
open_engine_on(const DeviceSpec& spec, const std::string& path, const EngineOptions& options) {
  return Engine::open(open_gguf(path), make_device(spec), options);
}

inline std::vector<float>
all_logits(Engine& engine, const std::vector<uint32_t>& tokens, uint32_t chunk = 0) {
  std::vector<float> result;
  size_t n_vocab = engine.config().n_vocab;
  engine.logits(tokens, chunk, [&](uint32_t first, uint32_t n, const float* rows) {
    EXPECT_EQ(result.size(), first * n_vocab);
    result.insert(result.end(), rows, rows + n * n_vocab);
  });
  return result;
}

inline std::vector<uint32_t> random_tokens(size_t n, uint32_t n_vocab, uint64_t seed) {
  std::vector<uint32_t> tokens;
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    tokens.push_back(3 + static_cast<uint32_t>((seed >> 33) % (n_vocab - 3)));
  }
  return tokens;
}

// What must be equal wherever answers are: text, token ids and the bits of log-probabilities.
inline std::string bits_of(const SequenceResult& result) {
  std::string bits = result.error + result.text;
  const auto append = [&](const auto& value) {
    bits.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (uint32_t token : result.tokens)
    append(token);
  for (const auto* list : {&result.prompt_logprobs, &result.logprobs}) {
    for (const AnswerToken& token : *list) {
      append(token.id);
      append(token.logprob);
      for (const TokenLogprob& top : token.top)
        append(top.logprob);
    }
  }
  return bits;
}

// Runs until nothing is active; results by handle.
inline std::vector<SequenceResult> run_all(Engine& engine, std::vector<SequenceRequest> requests) {
  std::vector<SequenceResult> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].handle = i;
    engine.submit(std::move(requests[i]));
  }
  while (engine.n_active() > 0) {
    for (SequenceResult& result : engine.step().finished) {
      results[result.handle] = std::move(result);
    }
  }
  return results;
}

}  // namespace nightsweep
