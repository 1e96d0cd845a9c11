// Models by file or by name: what submit needs of one (vocabulary, template), and the whole engine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat_template.h"
#include "engine/engine.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "runner/options.h"
#include "runner/request.h"

namespace nightsweep {

// A model that is there.
struct ModelRef {
  std::string path;  // absolute
  std::vector<std::pair<std::string, Json>> defaults;
};

// nullopt: neither a name of the table nor a file.
std::optional<ModelRef> find_model(const ModelTable& models, const std::string& file_or_name);
// Error(model) in place of nullopt.
ModelRef require_model(const ModelTable& models, const std::string& file_or_name);
// Error(usage) where --model is missing.
ModelRef chosen_model(const CommonOptions& options);

// Vocabulary, template and limits of a model; no weights are read. Enough to check prompts.
class PromptModel {
 public:
  // Throws Error(model).
  static std::unique_ptr<PromptModel> open(const ModelRef& ref, uint32_t context_tokens);

  const ModelRef& ref() const { return ref_; }
  const std::shared_ptr<const GgufModel>& gguf() const { return gguf_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const RequestMaker& maker() const { return *maker_; }
  uint32_t context_tokens() const { return context_tokens_; }
  // A maker for an engine whose context may be smaller.
  RequestMaker maker_for(uint32_t context_tokens) const;

 private:
  ModelRef ref_;
  std::shared_ptr<const GgufModel> gguf_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::string no_template_;
  uint32_t context_tokens_ = 0;
  std::unique_ptr<RequestMaker> maker_;
};

struct DeviceChoice {
  std::optional<uint32_t> cuda;  // number of the GPU; none: the CPU
  std::string why;               // for people: why not the other one, with a space before; or empty
};
// Throws Error(device) where the device asked for is not here, Error(usage) where it cannot do what
// else was asked for.
DeviceChoice choose_device(const CommonOptions& options);
// "cpu" or "cuda:0": what decides the bits.
std::string device_name(const CommonOptions& options);
// Warns of options that have no effect on the device.
std::unique_ptr<Device> open_device(const CommonOptions& options);
// Runs a small kernel and compares; Error(device) when its result is wrong.
void self_test(Device& device);
std::unique_ptr<Engine> open_engine(
    std::shared_ptr<const GgufModel> gguf,
    const CommonOptions& options,
    uint32_t most_kv_pages = UINT32_MAX);
EngineOptions engine_options_of(const CommonOptions& options);

// What was resident, what was streamed and at which share of the disk's rate, for reports.
std::string stream_text(const EngineStats& stats);
// Bytes a second through the ring over the disk's measured rate; 0 where nothing was streamed.
double disk_share(const EngineStats& stats);
// The same of the link into the memory of a GPU.
double link_share(const EngineStats& stats);

}  // namespace nightsweep
