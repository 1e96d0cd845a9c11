#include "support/gguf_writer.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <span>
#include <stdexcept>

#include "base/format.h"

namespace nightsweep {

namespace {

template <typename T>
void put(std::string& out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

template <typename T>
std::string scalar(T value) {
  std::string payload;
  put(payload, value);
  return payload;
}

template <typename T>
std::string array(GgufType element_type, const std::vector<T>& values) {
  std::string payload;
  put(payload, static_cast<uint32_t>(element_type));
  put<uint64_t>(payload, values.size());
  for (T value : values)
    put(payload, value);
  return payload;
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace

GgufWriter& GgufWriter::set_version(uint32_t version) {
  version_ = version;
  return *this;
}

GgufWriter& GgufWriter::set_alignment(uint32_t alignment) {
  alignment_ = alignment;
  return set_u32("general.alignment", alignment);
}

GgufWriter& GgufWriter::set_u8(std::string_view key, uint8_t value) {
  return set_raw_key(key, GgufType::u8, scalar(value));
}
GgufWriter& GgufWriter::set_i8(std::string_view key, int8_t value) {
  return set_raw_key(key, GgufType::i8, scalar(value));
}
GgufWriter& GgufWriter::set_u16(std::string_view key, uint16_t value) {
  return set_raw_key(key, GgufType::u16, scalar(value));
}
GgufWriter& GgufWriter::set_i16(std::string_view key, int16_t value) {
  return set_raw_key(key, GgufType::i16, scalar(value));
}
GgufWriter& GgufWriter::set_u32(std::string_view key, uint32_t value) {
  return set_raw_key(key, GgufType::u32, scalar(value));
}
GgufWriter& GgufWriter::set_i32(std::string_view key, int32_t value) {
  return set_raw_key(key, GgufType::i32, scalar(value));
}
GgufWriter& GgufWriter::set_u64(std::string_view key, uint64_t value) {
  return set_raw_key(key, GgufType::u64, scalar(value));
}
GgufWriter& GgufWriter::set_i64(std::string_view key, int64_t value) {
  return set_raw_key(key, GgufType::i64, scalar(value));
}
GgufWriter& GgufWriter::set_f32(std::string_view key, float value) {
  return set_raw_key(key, GgufType::f32, scalar(value));
}
GgufWriter& GgufWriter::set_f64(std::string_view key, double value) {
  return set_raw_key(key, GgufType::f64, scalar(value));
}
GgufWriter& GgufWriter::set_bool(std::string_view key, bool value) {
  return set_raw_key(key, GgufType::boolean, scalar<uint8_t>(value ? 1 : 0));
}
GgufWriter& GgufWriter::set_string(std::string_view key, std::string_view value) {
  std::string payload;
  put_string(payload, value);
  return set_raw_key(key, GgufType::string, payload);
}
GgufWriter& GgufWriter::set_strings(std::string_view key, const std::vector<std::string>& values) {
  std::string payload;
  put(payload, static_cast<uint32_t>(GgufType::string));
  put<uint64_t>(payload, values.size());
  for (const std::string& value : values)
    put_string(payload, value);
  return set_raw_key(key, GgufType::array, payload);
}
GgufWriter& GgufWriter::set_f32s(std::string_view key, const std::vector<float>& values) {
  return set_raw_key(key, GgufType::array, array(GgufType::f32, values));
}
GgufWriter& GgufWriter::set_i32s(std::string_view key, const std::vector<int32_t>& values) {
  return set_raw_key(key, GgufType::array, array(GgufType::i32, values));
}
GgufWriter& GgufWriter::set_u32s(std::string_view key, const std::vector<uint32_t>& values) {
  return set_raw_key(key, GgufType::array, array(GgufType::u32, values));
}
GgufWriter& GgufWriter::set_u64s(std::string_view key, const std::vector<uint64_t>& values) {
  return set_raw_key(key, GgufType::array, array(GgufType::u64, values));
}
GgufWriter& GgufWriter::set_bytes(std::string_view key, const std::vector<uint8_t>& values) {
  return set_raw_key(key, GgufType::array, array(GgufType::u8, values));
}

GgufWriter& GgufWriter::remove_key(std::string_view key) {
  std::erase_if(keys_, [&](const Key& entry) { return entry.name == key; });
  return *this;
}

GgufWriter&
GgufWriter::append_raw_key(std::string_view key, uint32_t type, std::string_view payload) {
  keys_.push_back({std::string(key), type, std::string(payload)});
  return *this;
}

GgufWriter& GgufWriter::set_raw_key(std::string_view key, GgufType type, std::string payload) {
  for (Key& entry : keys_) {
    if (entry.name != key) continue;
    entry.type = static_cast<uint32_t>(type);
    entry.payload = std::move(payload);
    return *this;
  }
  return append_raw_key(key, static_cast<uint32_t>(type), payload);
}

GgufWriter::Tensor* GgufWriter::find_tensor(std::string_view name) {
  auto place = std::find_if(
      tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) { return tensor.name == name; });
  return place == tensors_.end() ? nullptr : &*place;
}

bool GgufWriter::has_tensor(std::string_view name) const {
  return const_cast<GgufWriter*>(this)->find_tensor(name) != nullptr;
}

GgufWriter& GgufWriter::set_tensor(
    std::string_view name,
    const std::vector<uint64_t>& dims,
    uint32_t ggml_type,
    std::string data) {
  Tensor* place = find_tensor(name);
  if (place == nullptr) place = &tensors_.emplace_back();
  *place = {std::string(name), dims, ggml_type, std::move(data)};
  return *this;
}

GgufWriter& GgufWriter::set_f32_tensor(
    std::string_view name,
    const std::vector<uint64_t>& dims,
    const std::vector<float>& values) {
  std::string data;
  for (float value : values)
    put(data, value);
  return set_tensor(name, dims, static_cast<uint32_t>(QuantType::f32), std::move(data));
}

GgufWriter& GgufWriter::remove_tensor(std::string_view name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
  return *this;
}

GgufWriter& GgufWriter::force_offset(std::string_view tensor, uint64_t offset) {
  Tensor* place = find_tensor(tensor);
  if (place == nullptr) throw std::runtime_error("no tensor " + std::string(tensor));
  place->has_forced_offset = true;
  place->forced_offset = offset;
  return *this;
}

std::string GgufWriter::bytes() const {
  std::string out = "GGUF";
  put(out, version_);
  put<uint64_t>(out, tensors_.size());
  put<uint64_t>(out, keys_.size());
  for (const Key& key : keys_) {
    put_string(out, key.name);
    put(out, key.type);
    out += key.payload;
  }
  auto padded = [&](uint64_t size) { return (size + alignment_ - 1) / alignment_ * alignment_; };
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    put_string(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.dims.size()));
    for (uint64_t dim : tensor.dims)
      put(out, dim);
    put(out, tensor.ggml_type);
    put(out, tensor.has_forced_offset ? tensor.forced_offset : offset);
    offset += padded(tensor.data.size());
  }
  for (const Tensor& tensor : tensors_) {
    out.resize(padded(out.size()));
    out += tensor.data;
  }
  out.resize(padded(out.size()));
  return out;
}

void GgufWriter::write(const std::string& path) const {
  write_bytes(path, bytes());
}

std::vector<std::string> GgufWriter::write_split(const std::string& prefix, uint32_t n_files)
    const {
  std::vector<std::string> paths;
  for (uint32_t i = 0; i < n_files; ++i) {
    GgufWriter part;
    part.version_ = version_;
    if (i == 0) part.keys_ = keys_;
    if (alignment_ != part.alignment_) part.set_alignment(static_cast<uint32_t>(alignment_));
    part.set_u16("split.no", static_cast<uint16_t>(i));
    part.set_u16("split.count", static_cast<uint16_t>(n_files));
    part.set_i32("split.tensors.count", static_cast<int32_t>(tensors_.size()));
    part.tensors_.assign(
        tensors_.begin() + static_cast<ptrdiff_t>(tensors_.size() * i / n_files),
        tensors_.begin() + static_cast<ptrdiff_t>(tensors_.size() * (i + 1) / n_files));
    paths.push_back(format("{}-{:05}-of-{:05}.gguf", prefix, i + 1, n_files));
    part.write(paths.back());
  }
  return paths;
}

GgufModel model_of(const GgufWriter& writer) {
  const std::string bytes = writer.bytes();
  return GgufModel::from_head(
      "m.gguf", parse_gguf_head(std::as_bytes(std::span(bytes)), bytes.size(), "m.gguf"),
      bytes.size());
}

}  // namespace nightsweep
