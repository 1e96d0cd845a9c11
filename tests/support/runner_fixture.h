// What most tests of the runner need: a folder, a queue in it, and a vocabulary.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "jobs/jsonl.h"
#include "queue/queue.h"
#include "runner/model_source.h"
#include "runner/submission.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace nightsweep {

class RunnerTest : public testing::Test {
 protected:
  static constexpr const char* kTemplate =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";

  RunnerTest() {
    TinyModelOptions options;
    options.chat_template = kTemplate;
    write_tiny_llama(folder_.path("tiny.gguf"), options);
    queue_ = Queue::open(folder_.path("queue.db"));
  }

  std::string write_file(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path(name)) << text;
    return folder_.path(name);
  }

  const PromptModel& model() {
    if (model_ == nullptr) {
      model_ = PromptModel::open({.path = folder_.path("tiny.gguf"), .defaults = {}}, 256);
    }
    return *model_;
  }

  Submission submit(const std::vector<std::string>& files, SubmissionOptions options = {}) {
    options.files = files;
    return submit_files(*queue_, models_, nullptr, options);
  }
  Submission submit_text(const std::string& text, const SubmissionOptions& options = {}) {
    return submit({write_file("in.jsonl", text)}, options);
  }

  std::vector<StoredResult> results(const std::string& batch) {
    return queue_->results_by_line(batch, 0, 1000);
  }

  TemporaryFolder folder_;
  std::unique_ptr<Queue> queue_;
  ModelTable table_;
  PromptModels models_{table_, 256};
  std::unique_ptr<PromptModel> model_;
};

}  // namespace nightsweep
