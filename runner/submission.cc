#include "runner/submission.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <set>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "runner/line_store.h"
#include "runner/output.h"

namespace nightsweep {

namespace {

constexpr size_t kMostMessages = 20;
constexpr size_t kMostNames = 10;  // in one message

// The machine's randomness begins each run; asking it for every line would cost more than the
// line's checks.
int64_t draw_seed() {
  static std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seeds);
  }();
  return static_cast<int64_t>(generator() >> 1);
}

// The lines of all files, numbered through.
class BatchReader {
 public:
  BatchReader(
      Queue& queue,
      PromptModels& models,
      const PromptModel* model,
      const SubmissionOptions& options)
      : queue_(queue),
        models_(models),
        model_(model),
        options_(options),
        store_(queue.new_batch(), [this](auto errors, auto repeated) {
          report(errors, std::move(repeated));
        }) {
    line_options_.endpoint = options.endpoint;
    line_options_.defaults = options.defaults;
    line_options_.lenient = options.lenient;
    line_options_.draw_seed = draw_seed;
    if (model != nullptr) add_defaults(line_options_, *model);
  }

  Submission read() {
    if (std::optional<Submission> known = find_known()) return *std::move(known);
    for (const std::string& file : options_.files)
      read_file(file);
    store_.finish();
    refuse_if_bad();
    return commit({});
  }

  // Those lines of the inbox that were there when `part` was made.
  Submission read_inbox(const InboxPart& part) {
    constexpr uint32_t kPage = 256;
    parts_.push_back({.file = "inbox", .offset = 0});
    Sha256 hash;
    int64_t after = 0;
    for (;;) {
      std::vector<Queue::InboxLine> page = queue_.inbox_lines(part, after, kPage);
      for (const Queue::InboxLine& line : page) {
        after = line.id;
        ++last_line_;
        ++result_.n_lines;
        hash.add(line.line + "\n");
        bool is_long = line.line.size() > options_.max_line_bytes;
        read_line({.text = line.line, .number = last_line_, .too_long = is_long});
      }
      if (page.size() < kPage) break;
    }
    content_hashes_.push_back(hash.hex());
    store_.finish();
    return commit(part);
  }

 private:
  // A batch of the same files, parameters and model, which were checked when it came: a run that
  // goes on neither checks nor stores a million lines again. What is no file can be read once only.
  std::optional<Submission> find_known() {
    auto is_file = [](const std::string& file) {
      std::error_code ignored;
      return std::filesystem::is_regular_file(file, ignored);
    };
    if (!options_.is_found_again || model_ == nullptr || queue_.batches(1).empty() ||
        !std::all_of(options_.files.begin(), options_.files.end(), is_file)) {
      return std::nullopt;
    }
    for (const std::string& file : options_.files)
      content_hashes_.push_back(sha256_of_file(file, ErrorKind::input));
    std::optional<BatchInfo> twin = queue_.batch_of_content(content());
    bool is_known = twin && twin->key == key();
    content_hashes_.clear();
    if (!is_known) return std::nullopt;
    Submission known;
    known.batch = twin->id;
    known.existed = true;
    known.models = {model_->ref().path};
    return known;
  }

  struct FilePart {
    std::string file;
    uint64_t offset = 0;  // lines of the files before it
  };

  Submission commit(const std::optional<InboxPart>& inbox) {
    NewBatch batch;
    batch.inbox = inbox;
    batch.content = content();
    if (options_.is_found_again) batch.key = key();
    batch.name = options_.name;
    if (batch.name.empty()) {
      const std::string& first = options_.files.front();
      batch.name = first == "-" ? "stdin" : std::filesystem::path(first).filename().string();
    }
    if (model_ != nullptr) batch.model = model_->ref().path;
    batch.endpoint = endpoints_.size() == 1 ? endpoint_url(*endpoints_.begin()) : "mixed";
    batch.options = settings_json().dump();
    batch.priority = options_.priority;
    batch.idempotency_key = options_.idempotency_key;
    if (options_.expires_s > 0) {
      batch.expires_ms = (unix_ms() / 1000 + static_cast<int64_t>(options_.expires_s)) * 1000;
    }
    result_.twin = queue_.batch_of_content(batch.content);
    result_.batch = store_.writer().commit(batch, &result_.existed);
    report_names();
    return std::move(result_);
  }

  static void add_defaults(LineOptions& options, const PromptModel& model) {
    for (const auto& [key, value] : model.ref().defaults) {
      bool is_set = std::any_of(
          options.defaults.begin(), options.defaults.end(),
          [&, &name = key](const auto& pair) { return pair.first == name; });
      if (!is_set) options.defaults.emplace_back(key, value);
    }
  }

  void read_file(const std::string& file) {
    parts_.push_back({.file = file == "-" ? "stdin" : file, .offset = last_line_});
    FileDescriptor opened;
    if (file != "-") opened = open_for_reading(file, ErrorKind::input);
    LineReader reader(
        file == "-" ? STDIN_FILENO : opened.value(), parts_.back().file, options_.max_line_bytes);
    Sha256 hash;
    reader.on_bytes([&](std::string_view bytes) { hash.add(bytes); });
    uint64_t n_before = result_.n_lines;
    while (auto line = reader.next()) {
      last_line_ = parts_.back().offset + line->number;
      ++result_.n_lines;
      read_line(*line);
    }
    if (result_.n_lines == n_before) {
      fail(
          ErrorKind::input, "{}: expected at least one request line, found none",
          parts_.back().file);
    }
    content_hashes_.push_back(hash.hex());
  }

  void read_line(const LineReader::Line& line) {
    if (line.too_long) {
      refuse(line_too_long(last_line_, options_.max_line_bytes), nullptr);
      return;
    }
    auto parsed = parse_line(line.text, last_line_, line_options_);
    if (auto* error = std::get_if<LineError>(&parsed)) {
      refuse(*error, nullptr);
      return;
    }
    auto* job = &std::get<Job>(parsed);
    std::string model_name;
    const PromptModel* model = model_of(*job, model_name);
    if (model == nullptr && options_.needs_models) {
      refuse(
          line_error(
              job->line, job->custom_id, "body.model", no_model_text(*job, model_name),
              "model_not_found"),
          job);
      return;
    }
    if (model_ == nullptr && model != nullptr && !model->ref().defaults.empty()) {
      // Only now is it known whose defaults hold for this line.
      LineOptions with_defaults = line_options_;
      add_defaults(with_defaults, *model);
      parsed = parse_line(line.text, last_line_, with_defaults);
      if (auto* error = std::get_if<LineError>(&parsed)) {
        refuse(*error, nullptr);
        return;
      }
      job = &std::get<Job>(parsed);
    }
    if (model != nullptr) {
      auto prompts = model->maker().prompts(*job, submitted_unix_s_);
      if (auto* error = std::get_if<ApiError>(&prompts)) {
        refuse(
            line_error(
                job->line, job->custom_id, "body." + error->param, error->message, error->code),
            job);
        return;
      }
    }
    add(*job, model_name);
  }

  static std::string no_model_text(const Job& job, const std::string& mapped_name) {
    std::string found = job.model.empty() ? "none" : "'" + job.model + "'";
    if (mapped_name != job.model) {
      found += format(", which --map-model sends to '{}': neither file nor name", mapped_name);
    }
    return "expected a model of [models] or --map-model, or --model FILE for all lines, found " +
           found;
  }

  // Where a line goes: the model itself where it is at hand, and the name to store.
  const PromptModel* model_of(const Job& job, std::string& stored_name) {
    if (model_ != nullptr) {
      stored_name = model_->ref().path;
      if (!job.model.empty() && job.model != stored_name) note_name(job.model);
      return model_;
    }
    stored_name = job.model;
    const PromptModel* model = nullptr;
    auto mapped = std::find_if(
        options_.model_map.begin(), options_.model_map.end(),
        [&](const auto& pair) { return pair.first == job.model; });
    if (mapped != options_.model_map.end()) {
      stored_name = mapped->second;
      model = models_.find(mapped->second);
    } else {
      model = models_.find_named(job.model);
    }
    if (model != nullptr) stored_name = model->ref().path;
    return model;
  }

  static LineError line_error(
      uint64_t line,
      std::string custom_id,
      std::string field,
      std::string message,
      std::string code) {
    LineError error;
    error.line = line;
    error.field = std::move(field);
    error.message = std::move(message);
    error.custom_id = std::move(custom_id);
    error.code = std::move(code);
    return error;
  }

  void add(const Job& job, const std::string& model_name) {
    NewLine stored;
    stored.job.line = last_line_;
    stored.job.custom_id = job.custom_id;
    stored.job.model = model_name;
    // Of a file that is refused the ids alone are of use: another line may repeat one.
    if (!is_refused_) stored.job.request = job_to_text(job);
    stored.job.expected_tokens = expected_tokens(job);
    store_.add(std::move(stored));
    endpoints_.insert(job.endpoint);
    if (options_.needs_models) {
      auto& models = result_.models;
      if (std::find(models.begin(), models.end(), model_name) == models.end()) {
        models.push_back(model_name);
      }
    }
    for (const std::string& field : job.ignored) {
      if (ignored_.size() < kMostNames) ignored_.insert(field);
    }
  }

  void refuse(const LineError& error, const Job* job) {
    if (options_.keep_going) {
      NewLine kept;
      kept.job.line = last_line_;
      kept.job.custom_id = error.custom_id;
      if (model_ != nullptr) kept.job.model = model_->ref().path;
      if (job != nullptr) kept.job.request = job_to_text(*job);
      kept.refusal = result_of(error);
      store_.add(std::move(kept));
    } else {
      is_refused_ = true;
    }
    store_.refuse(error);
  }

  static NewResult result_of(const LineError& error) {
    NewResult result;
    ApiError api = error.api_error();
    result.status_code = api.status_code;
    result.body = error_body(api).dump();
    return result;
  }

  // What has come to light in a slice, by line.
  void report(const std::vector<LineError>& errors, std::vector<BatchWriter::Repeated> repeated) {
    auto error = errors.begin();
    for (BatchWriter::Repeated& one : repeated) {
      const NewJob& job = one.line.job;
      for (; error != errors.end() && error->line < job.line; ++error)
        show(*error);
      const LineError found = repeated_id(job, one.first_line);
      // A line that was refused before has its message.
      if (!one.line.refusal) show(found);
      if (options_.keep_going) {
        if (!one.line.refusal) one.line.refusal = result_of(found);
        keep_renamed(std::move(one.line));
      } else {
        is_refused_ = true;
      }
    }
    for (; error != errors.end(); ++error)
      show(*error);
  }

  LineError repeated_id(const NewJob& job, uint64_t first_line) const {
    auto [file, line] = place(first_line);
    std::string where =
        file == place(job.line).first ? format("line {}", line) : format("{}:{}", file, line);
    return line_error(
        job.line, job.custom_id, "custom_id",
        format(
            "expected an id of its own, found {}, which {} has", Json(job.custom_id).dump(), where),
        "invalid_value");
  }

  // An id that is taken cannot stand a second time: the line's number names it then.
  void keep_renamed(NewLine line) {
    const uint64_t number = line.job.line;
    for (int n = 0;; ++n) {
      line.job.custom_id = format("line-{}{}", number, n == 0 ? "" : format("-{}", n));
      std::vector<NewLine> lines;
      lines.push_back(std::move(line));
      std::vector<BatchWriter::Repeated> repeated = store_.writer().add(std::move(lines));
      if (repeated.empty()) return;
      line = std::move(repeated.front().line);
    }
  }

  // File and line in it of a line numbered through.
  std::pair<std::string, uint64_t> place(uint64_t line) const {
    const FilePart* part = &parts_.front();
    for (const FilePart& candidate : parts_) {
      if (candidate.offset < line) part = &candidate;
    }
    return {part->file, line - part->offset};
  }

  void show(const LineError& error) {
    ++result_.n_refused;
    if (result_.n_refused > kMostMessages) return;
    auto [file, line] = place(error.line);
    LineError shown = error;
    shown.line = line;
    write_message(shown.text(file) + "\n");
  }

  void refuse_if_bad() const {
    if (result_.n_refused > kMostMessages) {
      write_message(format("and {} more\n", result_.n_refused - kMostMessages));
    }
    if (result_.n_refused == 0 || options_.keep_going) return;
    fail(
        ErrorKind::input,
        "{} of {} lines refused, nothing was queued (mend them, or give --keep-going to queue the "
        "others)",
        result_.n_refused, result_.n_lines);
  }

  void note_name(const std::string& name) {
    ++n_other_names_;
    if (other_names_.size() < kMostNames) other_names_.insert(name);
  }

  void report_names() const {
    if (n_other_names_ > 0) {
      std::string names;
      for (const std::string& name : other_names_)
        names += (names.empty() ? "" : ", ") + name;
      log_info(
          "{} lines name another model ({}{}); all go to {}", n_other_names_, names,
          other_names_.size() == kMostNames ? ", ..." : "", model_->ref().path);
    }
    if (!ignored_.empty()) {
      std::string names;
      for (const std::string& name : ignored_)
        names += (names.empty() ? "" : ", ") + name;
      log_info("parameters without effect here: {}", names);
    }
  }

  Json settings_json() const {
    Json settings = Json::Object{};
    Json defaults = Json::Object{};
    for (const auto& [key, value] : line_options_.defaults)
      defaults.set(key, value);
    settings.set("set", std::move(defaults));
    Json map = Json::Object{};
    for (const auto& [from, to] : options_.model_map)
      map.set(from, to);
    settings.set("map_model", std::move(map));
    settings.set(
        "endpoint", options_.endpoint ? Json(endpoint_url(*options_.endpoint)) : Json(nullptr));
    settings.set("lenient", options_.lenient);
    settings.set("keep_going", options_.keep_going);
    settings.set("max_line_bytes", static_cast<uint64_t>(options_.max_line_bytes));
    return settings;
  }

  // Lines and parameters, to notice the same ones again.
  std::string content() const {
    Sha256 hash;
    for (const std::string& lines : content_hashes_)
      hash.add(lines + "\n");
    hash.add((model_ != nullptr ? model_->ref().path : "") + "\n" + settings_json().dump());
    return hash.hex();
  }

  // Everything that decides the answers, and nothing that does not.
  std::string key() {
    Sha256 hash;
    for (const std::string& content : content_hashes_)
      hash.add(content + "\n");
    if (model_ != nullptr) {
      hash.add(model_->gguf()->fingerprint() + "\n");
    } else {
      for (const std::string& path : result_.models) {
        const PromptModel* model = models_.find(path);
        hash.add(model == nullptr ? path : model->gguf()->fingerprint());
        hash.add("\n");
      }
    }
    hash.add(settings_json().dump() + "\n" + options_.key_suffix);
    return hash.hex();
  }

  Queue& queue_;
  PromptModels& models_;
  const PromptModel* model_;
  const SubmissionOptions& options_;
  LineOptions line_options_;
  int64_t submitted_unix_s_ = unix_ms() / 1000;
  Submission result_;
  std::vector<FilePart> parts_;
  uint64_t last_line_ = 0;
  std::vector<std::string> content_hashes_;
  std::set<Endpoint> endpoints_;
  std::set<std::string> other_names_;
  uint64_t n_other_names_ = 0;
  std::set<std::string> ignored_;
  bool is_refused_ = false;  // nothing will be queued
  LineStore store_;          // last: its reports use the others
};

}  // namespace

const PromptModel* PromptModels::find(const std::string& file_or_name) {
  auto known = by_name_.find(file_or_name);
  if (known != by_name_.end()) return known->second;
  constexpr size_t kMostKnown = 1000;  // names of a hostile file
  auto ref = find_model(table_, file_or_name);
  const PromptModel* model = ref ? &open(*ref) : nullptr;
  if (by_name_.size() < kMostKnown) by_name_[file_or_name] = model;
  return model;
}

const PromptModel* PromptModels::find_named(const std::string& name) {
  return table_.contains(name) ? find(name) : nullptr;
}

const PromptModel& PromptModels::open(const ModelRef& ref) {
  auto& model = by_path_[ref.path];
  if (model == nullptr) model = PromptModel::open(ref, context_tokens_);
  return *model;
}

Submission submit_files(
    Queue& queue,
    PromptModels& models,
    const PromptModel* model,
    const SubmissionOptions& options) {
  return BatchReader(queue, models, model, options).read();
}

uint64_t
submit_inbox(Queue& queue, PromptModels& models, const PromptModel* model, const InboxPart& part) {
  SubmissionOptions options;
  options.name = part.name;
  options.priority = part.priority;
  options.keep_going = true;
  if (!part.model.empty()) options.model_map.emplace_back("", part.model);
  return BatchReader(queue, models, model, options).read_inbox(part).n_lines;
}

}  // namespace nightsweep
