// GgufModel: opening one file or a split set, and typed access to the keys.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "engine/gguf.h"

namespace nightsweep {

namespace {

// A head is a few MB, most of it the vocabulary.
constexpr uint64_t kFirstReadBytes = 1 << 20;
constexpr uint64_t kMaxHeadBytes = 256 << 20;

constexpr uint64_t kSampleBytes = 4096;
constexpr uint64_t kSamples = 64;

constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";

struct OpenedFile {
  GgufHead head;
  uint64_t size_bytes = 0;
  FileIdentity identity;
  std::string digest;
};

void read_at(
    const FileDescriptor& fd,
    const std::string& path,
    uint64_t offset,
    std::span<std::byte> out) {
  while (!out.empty()) {
    ssize_t n = ::pread(fd.value(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(ErrorKind::model, errno, path);
    if (n == 0) {
      fail(ErrorKind::model, "{}: the file ends at byte {}; it became shorter", path, offset);
    }
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void hash_samples(
    const FileDescriptor& fd,
    const std::string& path,
    uint64_t begin,
    uint64_t end,
    Sha256& hash) {
  std::vector<std::byte> sample(kSampleBytes);
  if (end <= begin) return;
  uint64_t data_bytes = end - begin;
  for (uint64_t i = 0; i < kSamples; ++i) {
    uint64_t size_bytes = std::min(kSampleBytes, data_bytes);
    // In this order nothing overflows: data_bytes may be anything up to 2^63.
    uint64_t step = (data_bytes - size_bytes) / (kSamples - 1);
    uint64_t offset = i == kSamples - 1 ? data_bytes - size_bytes : i * step;
    read_at(fd, path, begin + offset, std::span(sample).subspan(0, size_bytes));
    hash.add(sample.data(), size_bytes);
  }
}

// Reads the head: a larger piece of the file each time, until it is whole.
OpenedFile open_file(const std::string& path) {
  struct stat status {};
  // Asked before opening: opening a FIFO would wait for a writer.
  if (::stat(path.c_str(), &status) != 0) fail_errno(ErrorKind::model, errno, path);
  if (!S_ISREG(status.st_mode)) {
    fail(
        ErrorKind::model, "{}: expected a GGUF file, found {}", path,
        S_ISDIR(status.st_mode) ? "a folder" : "something that is no regular file");
  }
  FileDescriptor fd = open_for_reading(path, ErrorKind::model);

  OpenedFile file;
  file.size_bytes = static_cast<uint64_t>(status.st_size);
  file.identity = identity_of(fd.value(), path, ErrorKind::model);
  std::vector<std::byte> bytes;
  std::optional<GgufHead> head;
  uint64_t want_bytes = kFirstReadBytes;
  for (;;) {
    size_t had_bytes = bytes.size();
    bytes.resize(std::min(want_bytes, file.size_bytes));
    read_at(fd, path, had_bytes, std::span(bytes).subspan(had_bytes));
    head = parse_gguf_prefix(bytes, file.size_bytes, path);
    if (head.has_value()) break;
    if (want_bytes >= kMaxHeadBytes) {
      fail(
          ErrorKind::model, "{}: metadata and tensor list are larger than {} bytes", path,
          kMaxHeadBytes);
    }
    want_bytes *= 2;
  }
  file.head = *std::move(head);

  // The head may end in the last bytes that were read; its padding counts as data then.
  uint64_t head_bytes = std::min<uint64_t>(file.head.data_offset, bytes.size());
  Sha256 hash;
  hash.add(format("{} {}\n", file.size_bytes, head_bytes));
  hash.add(bytes.data(), head_bytes);
  hash_samples(fd, path, head_bytes, file.size_bytes, hash);
  file.digest = hash.hex();
  return file;
}

const GgufValue* find_key(
    const std::vector<std::pair<std::string, GgufValue>>& keys,
    std::string_view name) {
  auto entry =
      std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return key.first == name; });
  return entry == keys.end() ? nullptr : &entry->second;
}

std::optional<uint64_t>
find_split_number(const GgufHead& head, const std::string& path, std::string_view key) {
  const GgufValue* value = find_key(head.keys, key);
  if (value == nullptr) return std::nullopt;
  const auto* number = std::get_if<int64_t>(&value->value);
  if (number == nullptr || *number < 0) {
    fail(
        ErrorKind::model, "{}: key '{}': expected an integer of at least 0, found {}", path, key,
        number == nullptr ? std::string(gguf_type_name(value->type)) : format("{}", *number));
  }
  return static_cast<uint64_t>(*number);
}

uint64_t require_split_number(const GgufHead& head, const std::string& path, std::string_view key) {
  std::optional<uint64_t> number = find_split_number(head, path, key);
  if (!number.has_value()) {
    fail(ErrorKind::model, "{}: key '{}' is missing, files of a split set have it", path, key);
  }
  return *number;
}

// "PREFIX-00002-of-00003.gguf"
struct SplitName {
  std::string prefix;
  uint64_t number = 0;  // from 1
  uint64_t count = 0;

  std::string path_of(uint64_t other) const {
    return format("{}-{:05}-of-{:05}.gguf", prefix, other, count);
  }
};

std::optional<SplitName> parse_split_name(const std::string& path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  constexpr size_t kNumberAt = 1;
  constexpr size_t kCountAt = 10;
  constexpr size_t kDigits = 5;
  if (path.size() < kPattern.size()) return std::nullopt;
  std::string_view tail = std::string_view(path).substr(path.size() - kPattern.size());
  SplitName name;
  name.prefix = path.substr(0, path.size() - kPattern.size());
  for (size_t i = 0; i < tail.size(); ++i) {
    bool fits = kPattern[i] == '0' ? tail[i] >= '0' && tail[i] <= '9' : tail[i] == kPattern[i];
    if (!fits) return std::nullopt;
  }
  std::from_chars(tail.data() + kNumberAt, tail.data() + kNumberAt + kDigits, name.number);
  std::from_chars(tail.data() + kCountAt, tail.data() + kCountAt + kDigits, name.count);
  return name;
}

}  // namespace

void GgufModel::add_file(const std::string& path, GgufHead head, uint64_t size_bytes) {
  auto file = static_cast<uint32_t>(paths_.size());
  if (file == 0) {
    version_ = head.version;
    alignment_ = head.alignment;
    keys_ = std::move(head.keys);
    for (size_t i = 0; i < keys_.size(); ++i)
      key_index_.emplace(keys_[i].first, i);
  } else {
    for (const auto& [key, value] : head.keys) {
      if (key.starts_with("split.") || key == "general.alignment") continue;
      const GgufValue* known = find(key);
      if (known != nullptr && *known == value) continue;
      fail(
          ErrorKind::model, "{}: key {} is not as in {}, which holds the keys of the whole set",
          path, quoted_for_message(key), paths_.front());
    }
  }
  for (GgufTensor& tensor : head.tensors) {
    tensor.file = file;
    auto [place, is_new] = tensor_index_.emplace(tensor.name, tensors_.size());
    if (!is_new) {
      fail(
          ErrorKind::model, "{}: tensor {} stands in {} as well", path,
          quoted_for_message(tensor.name), paths_[tensors_[place->second].file]);
    }
    tensors_.push_back(std::move(tensor));
  }
  paths_.push_back(path);
  file_bytes_.push_back(size_bytes);
}

GgufModel GgufModel::open(const std::string& path) {
  GgufModel model;
  Sha256 hash;
  OpenedFile named = open_file(path);
  std::optional<uint64_t> count = find_split_number(named.head, path, kSplitCount);
  if (count.value_or(1) <= 1) {
    model.add_file(path, std::move(named.head), named.size_bytes);
    model.file_identities_ = {named.identity};
    model.fingerprint_ = named.digest;
    return model;
  }

  std::optional<SplitName> name = parse_split_name(path);
  uint64_t number = require_split_number(named.head, path, kSplitNumber);
  if (!name.has_value() || name->count != *count || name->number != number + 1) {
    fail(
        ErrorKind::model,
        "{}: this is file {} of a set of {}, so its name must end in -{:05}-of-{:05}.gguf", path,
        number + 1, *count, number + 1, *count);
  }
  for (uint64_t i = 0; i < *count; ++i) {
    std::string part = name->path_of(i + 1);
    if (::access(part.c_str(), F_OK) != 0 && errno == ENOENT) {
      fail(
          ErrorKind::model,
          "{}: file {} of {} of this model is missing (put all files of the set "
          "into one folder)",
          part, i + 1, *count);
    }
    OpenedFile file = open_file(part);
    hash.add(file.digest);
    uint64_t found_count = require_split_number(file.head, part, kSplitCount);
    uint64_t found_number = require_split_number(file.head, part, kSplitNumber);
    if (found_count != *count || found_number != i) {
      fail(
          ErrorKind::model,
          "{}: keys '{}' and '{}' are {} and {}, expected {} and {} (files of different sets?)",
          part, kSplitNumber, kSplitCount, found_number, found_count, i, *count);
    }
    model.add_file(part, std::move(file.head), file.size_bytes);
    model.file_identities_.push_back(file.identity);
  }
  uint64_t n_tensors = model.require_unsigned(kSplitTensors);
  if (n_tensors != model.tensors_.size()) {
    fail(
        ErrorKind::model, "{}: key '{}' is {}, but the {} files hold {} tensors", model.name(),
        kSplitTensors, n_tensors, *count, model.tensors_.size());
  }
  model.fingerprint_ = hash.hex();
  return model;
}

GgufModel GgufModel::from_head(const std::string& name, GgufHead head, uint64_t file_bytes) {
  GgufModel model;
  model.add_file(name, std::move(head), file_bytes);
  return model;
}

void GgufModel::read_tensor(const GgufTensor& tensor, uint64_t offset, std::span<std::byte> out)
    const {
  const std::string& path = paths_[tensor.file];
  read_at(open_for_reading(path, ErrorKind::model), path, tensor.offset + offset, out);
}

const GgufValue* GgufModel::find(std::string_view key) const {
  auto entry = key_index_.find(key);
  return entry == key_index_.end() ? nullptr : &keys_[entry->second].second;
}

const GgufTensor* GgufModel::find_tensor(std::string_view name) const {
  auto entry = tensor_index_.find(name);
  return entry == tensor_index_.end() ? nullptr : &tensors_[entry->second];
}

namespace {

[[noreturn]] void fail_kind(
    const GgufModel& model,
    std::string_view key,
    std::string_view expected,
    const GgufValue& found) {
  fail(
      ErrorKind::model, "{}: key '{}': expected {}, found {}", model.name(), key, expected,
      gguf_type_name(found.type));
}

[[noreturn]] void fail_missing(const GgufModel& model, std::string_view key) {
  fail(ErrorKind::model, "{}: key '{}' is missing", model.name(), key);
}

}  // namespace

std::optional<uint64_t> GgufModel::find_unsigned(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* large = std::get_if<uint64_t>(&value->value)) return *large;
  const auto* number = std::get_if<int64_t>(&value->value);
  if (number == nullptr) fail_kind(*this, key, "an integer", *value);
  if (*number < 0) {
    fail(
        ErrorKind::model, "{}: key '{}': expected an integer of at least 0, found {}", name(), key,
        *number);
  }
  return static_cast<uint64_t>(*number);
}

std::optional<double> GgufModel::find_number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* real = std::get_if<double>(&value->value)) return *real;
  if (const auto* number = std::get_if<int64_t>(&value->value)) {
    return static_cast<double>(*number);
  }
  if (const auto* large = std::get_if<uint64_t>(&value->value)) return static_cast<double>(*large);
  fail_kind(*this, key, "a number", *value);
}

std::optional<bool> GgufModel::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* flag = std::get_if<bool>(&value->value);
  if (flag == nullptr) fail_kind(*this, key, "a boolean", *value);
  return *flag;
}

const std::string* GgufModel::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* text = std::get_if<std::string>(&value->value);
  if (text == nullptr) fail_kind(*this, key, "a string", *value);
  return text;
}

const GgufArray* GgufModel::find_array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (array == nullptr) fail_kind(*this, key, "an array", *value);
  return array;
}

uint64_t GgufModel::require_unsigned(std::string_view key) const {
  std::optional<uint64_t> number = find_unsigned(key);
  if (!number.has_value()) fail_missing(*this, key);
  return *number;
}

const std::string& GgufModel::require_string(std::string_view key) const {
  const std::string* text = find_string(key);
  if (text == nullptr) fail_missing(*this, key);
  return *text;
}

}  // namespace nightsweep
