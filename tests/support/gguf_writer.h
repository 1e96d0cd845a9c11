// Writes GGUF files for tests: sound ones by default, hostile ones when asked to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"

namespace nightsweep {

// Setters replace a key of the same name. Everything returns the writer itself, to be chained.
class GgufWriter {
 public:
  GgufWriter& set_version(uint32_t version);
  // Writes the key general.alignment as well.
  GgufWriter& set_alignment(uint32_t alignment);

  GgufWriter& set_u8(std::string_view key, uint8_t value);
  GgufWriter& set_i8(std::string_view key, int8_t value);
  GgufWriter& set_u16(std::string_view key, uint16_t value);
  GgufWriter& set_i16(std::string_view key, int16_t value);
  GgufWriter& set_u32(std::string_view key, uint32_t value);
  GgufWriter& set_i32(std::string_view key, int32_t value);
  GgufWriter& set_u64(std::string_view key, uint64_t value);
  GgufWriter& set_i64(std::string_view key, int64_t value);
  GgufWriter& set_f32(std::string_view key, float value);
  GgufWriter& set_f64(std::string_view key, double value);
  GgufWriter& set_bool(std::string_view key, bool value);
  GgufWriter& set_string(std::string_view key, std::string_view value);
  GgufWriter& set_strings(std::string_view key, const std::vector<std::string>& values);
  GgufWriter& set_f32s(std::string_view key, const std::vector<float>& values);
  GgufWriter& set_i32s(std::string_view key, const std::vector<int32_t>& values);
  GgufWriter& set_u32s(std::string_view key, const std::vector<uint32_t>& values);
  GgufWriter& set_u64s(std::string_view key, const std::vector<uint64_t>& values);
  GgufWriter& set_bytes(std::string_view key, const std::vector<uint8_t>& values);
  GgufWriter& remove_key(std::string_view key);
  // Any bytes as a value, also beside a key of the same name.
  GgufWriter& append_raw_key(std::string_view key, uint32_t type, std::string_view payload);

  // dims: fastest first, as in the file. A tensor of the same name is replaced in its place.
  GgufWriter& set_tensor(
      std::string_view name,
      const std::vector<uint64_t>& dims,
      uint32_t ggml_type,
      std::string data);
  GgufWriter& set_f32_tensor(
      std::string_view name,
      const std::vector<uint64_t>& dims,
      const std::vector<float>& values);
  GgufWriter& remove_tensor(std::string_view name);
  // What the list of tensors says in place of the true offset.
  GgufWriter& force_offset(std::string_view tensor, uint64_t offset);
  bool has_tensor(std::string_view name) const;

  // The file.
  std::string bytes() const;
  void write(const std::string& path) const;
  // PREFIX-00001-of-0000N.gguf and so on; the keys go into the first. Returns the paths.
  std::vector<std::string> write_split(const std::string& prefix, uint32_t n_files) const;

 private:
  struct Key {
    std::string name;
    uint32_t type = 0;
    std::string payload;
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t ggml_type = 0;
    std::string data;
    bool has_forced_offset = false;
    uint64_t forced_offset = 0;
  };

  GgufWriter& set_raw_key(std::string_view key, GgufType type, std::string payload);
  Tensor* find_tensor(std::string_view name);

  uint32_t version_ = 3;
  uint64_t alignment_ = 32;
  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
};

// What the program makes of the head that the writer would write.
GgufModel model_of(const GgufWriter& writer);

}  // namespace nightsweep
