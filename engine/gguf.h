// GGUF: the head of a model file, parsed from bytes. Reads no weights.
//
// Every length is checked against the bytes that remain before anything is allocated, so a hostile
// file costs at most a small multiple of its own size. Format: the GGUF specification, versions 2
// and 3 (ggml repository, docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"
#include "kernels/quant.h"

namespace nightsweep {

// Numbers are the file's own.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
const char* gguf_type_name(GgufType type);

struct GgufValue;
// Integers and booleans are widened to int64_t; an array with a u64 above 2^63 - 1 is unsigned as a
// whole. element_type tells what stood in the file.
struct GgufArray {
  GgufType element_type = GgufType::u8;
  std::variant<
      std::vector<int64_t>,
      std::vector<uint64_t>,
      std::vector<double>,
      std::vector<std::string>>
      values;
  size_t size() const;
  bool operator==(const GgufArray&) const = default;
};
// Integers are int64_t; a u64 above 2^63 - 1 is uint64_t.
struct GgufValue {
  GgufType type = GgufType::u8;
  std::variant<int64_t, uint64_t, double, bool, std::string, GgufArray> value;
  bool operator==(const GgufValue&) const = default;
};

struct GgufTensor {
  std::string name;
  std::vector<uint64_t> dims;  // fastest first: {n_cols, n_rows, ...}
  uint32_t ggml_type = 0;      // known to find_quant_traits()
  uint32_t file = 0;           // which file of a split set
  uint64_t offset = 0;         // bytes from the start of that file
  uint64_t size_bytes = 0;
  uint64_t n_elems() const;
};

// What one file holds. Throws Error(model); the text names the field and gives expected and found.
// Pure: the libFuzzer target calls it.
struct GgufHead {
  uint32_t version = 0;
  uint64_t alignment = 32;
  uint64_t data_offset = 0;                             // where tensor data begins
  std::vector<std::pair<std::string, GgufValue>> keys;  // order of the file
  std::vector<GgufTensor> tensors;                      // order of the file
};
// `head`: at least the whole head of a file of `file_bytes` bytes. `name` stands in messages.
GgufHead
parse_gguf_head(std::span<const std::byte> head, uint64_t file_bytes, std::string_view name);
// The same for the first bytes of a file: nullopt when they end before the head does.
std::optional<GgufHead>
parse_gguf_prefix(std::span<const std::byte> prefix, uint64_t file_bytes, std::string_view name);

// Text of a file for a message: in quotes, cut when long, what is no printable ASCII escaped.
std::string quoted_for_message(std::string_view text);

// A model: one file or a split set, opened by its first file (any of the set is accepted). The keys
// are those of the first file; names and tensors are those of all.
class GgufModel {
 public:
  // Reads heads and a few samples of the data. Throws Error(model): not there, damaged, a file of
  // the set missing or foreign.
  static GgufModel open(const std::string& path);
  // From a head alone: no fingerprint, and read_tensor() finds no data.
  static GgufModel from_head(const std::string& name, GgufHead head, uint64_t file_bytes);

  const std::vector<std::string>& paths() const { return paths_; }
  const std::vector<uint64_t>& file_bytes() const { return file_bytes_; }
  // As they were when their heads were read; empty for a model from a head alone.
  const std::vector<FileIdentity>& file_identities() const { return file_identities_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }

  const std::vector<std::pair<std::string, GgufValue>>& keys() const { return keys_; }
  const GgufValue* find(std::string_view key) const;
  // Typed access. A missing key gives nullopt; a value of another kind is Error(model) naming key,
  // expected and found. Integers of any width are accepted where an integer is asked for.
  std::optional<uint64_t> find_unsigned(std::string_view key) const;
  std::optional<double> find_number(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  const std::string* find_string(std::string_view key) const;
  const GgufArray* find_array(std::string_view key) const;
  // Error(model) when missing.
  uint64_t require_unsigned(std::string_view key) const;
  const std::string& require_string(std::string_view key) const;
  std::string architecture() const { return require_string("general.architecture"); }

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;
  // Bytes [offset, offset + out.size()) of a tensor, by a plain read: for small tensors and for
  // looking at one. The weights of a run come through WeightStream. Throws Error(model).
  void read_tensor(const GgufTensor& tensor, uint64_t offset, std::span<std::byte> out) const;
  // The first file: how messages about this model begin.
  const std::string& name() const { return paths_.front(); }

  // Names the model by its content: SHA-256 over all heads and samples of the data (4 KiB at 64
  // places of each file), with file sizes. Cheap on a 40 GB file.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  void add_file(const std::string& path, GgufHead head, uint64_t size_bytes);

  std::vector<std::string> paths_;
  std::vector<uint64_t> file_bytes_;
  std::vector<FileIdentity> file_identities_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::vector<std::pair<std::string, GgufValue>> keys_;
  std::map<std::string, size_t, std::less<>> key_index_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
  std::string fingerprint_;
};

}  // namespace nightsweep
