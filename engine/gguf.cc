#include "engine/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace nightsweep {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as they stand");

namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
// The specification asks for a multiple of 8; readers of tensor data rely on it.
constexpr uint64_t kMinAlignment = 8;
constexpr uint64_t kMaxAlignment = 64 << 10;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint32_t kMaxDims = 4;
// The least that one entry takes in a file: a name of one byte and the smallest value, or one
// dimension.
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint64_t kStringLengthBytes = 8;
constexpr auto kInt64Max = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

// The bytes at hand end before the head does, and the file goes on.
struct PrefixTooShort {};

bool multiply(uint64_t a, uint64_t b, uint64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}
bool add(uint64_t a, uint64_t b, uint64_t& out) {
  return !__builtin_add_overflow(a, b, &out);
}

bool is_known(GgufType type) {
  return static_cast<uint32_t>(type) <= 12;
}

// Bytes of a value of fixed size.
uint64_t fixed_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    default:
      return 8;
  }
}

// Walks over the bytes; every step is checked against what the file and the prefix still hold.
class HeadParser {
 public:
  HeadParser(std::span<const std::byte> prefix, uint64_t file_bytes, std::string_view name)
      : prefix_(prefix), file_bytes_(file_bytes), name_(name) {}

  GgufHead parse() {
    GgufHead head;
    where_ = "header";
    head.version = read_version();
    uint64_t n_tensors = read_count("tensors", kMinTensorBytes);
    uint64_t n_keys = read_count("keys", kMinKeyBytes);
    read_keys(n_keys, head);
    head.alignment = read_alignment(head);
    // Offsets count from where the data begins, which is known only behind the last tensor.
    for (uint64_t i = 0; i < n_tensors; ++i) {
      where_ = format("tensor {} of {}", i + 1, n_tensors);
      head.tensors.push_back(read_tensor());
    }
    place_tensors(head);
    return head;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail(ErrorKind::model, "{}: {}: {}", name_, where_, format(text, std::forward<Args>(args)...));
  }

  uint64_t remaining() const { return file_bytes_ - position_; }

  // Makes sure that `n` more bytes are at hand.
  void need(uint64_t n, std::string_view what) const {
    if (n > remaining()) {
      refuse(
          "{} of {} bytes at byte {} reaches past the end of the file ({} bytes); the file is cut "
          "short or damaged, fetch it again",
          what, n, position_, file_bytes_);
    }
    if (n > prefix_.size() - position_) throw PrefixTooShort();
  }

  const std::byte* take(uint64_t n, std::string_view what) {
    need(n, what);
    const std::byte* bytes = prefix_.data() + position_;
    position_ += n;
    return bytes;
  }

  template <typename T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }

  uint64_t read_count(std::string_view of_what, uint64_t min_bytes_each) {
    auto count = read<uint64_t>("count");
    if (count > remaining() / min_bytes_each) {
      refuse(
          "the number of {} is {}, but the {} bytes that follow hold at most {}", of_what, count,
          remaining(), remaining() / min_bytes_each);
    }
    return count;
  }

  std::string read_string(std::string_view what) {
    auto length = read<uint64_t>("length");
    const std::byte* bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes), length};
  }

  uint32_t read_version() {
    if (file_bytes_ == 0) refuse("the file is empty; expected a GGUF file");
    auto magic = read<uint32_t>("magic");
    if (magic != kMagic) {
      refuse(
          "the file begins with {}, expected \"GGUF\"; this is not a GGUF file",
          quoted_for_message({reinterpret_cast<const char*>(prefix_.data()), 4}));
    }
    auto version = read<uint32_t>("version");
    if (version != 0 && (version & 0xffff) == 0) {
      refuse("the file is big-endian; only little-endian GGUF files are supported");
    }
    if (version == 1) {
      refuse("version 1 is too old; expected 2 or 3 (convert the model again with current tools)");
    }
    if (version != 2 && version != 3) refuse("version is {}, expected 2 or 3", version);
    return version;
  }

  void read_keys(uint64_t n_keys, GgufHead& head) {
    for (uint64_t i = 0; i < n_keys; ++i) {
      where_ = format("key {} of {}", i + 1, n_keys);
      std::string key = read_string("key");
      if (key.empty()) refuse("the key is empty");
      if (key.size() > kMaxKeyBytes) {
        refuse("the key is {} bytes long, at most {} are allowed", key.size(), kMaxKeyBytes);
      }
      where_ = format("key {}", quoted_for_message(key));
      GgufType type = read_type("value");
      GgufValue value = read_value(type);
      head.keys.emplace_back(std::move(key), std::move(value));
    }
    std::vector<std::string_view> names;
    names.reserve(head.keys.size());
    for (const auto& entry : head.keys)
      names.emplace_back(entry.first);
    refuse_repeated(names, "key");
  }

  void refuse_repeated(std::vector<std::string_view>& names, std::string_view what) {
    std::sort(names.begin(), names.end());
    auto twin = std::adjacent_find(names.begin(), names.end());
    if (twin == names.end()) return;
    where_ = format("{} {}", what, quoted_for_message(*twin));
    refuse("stands in the file twice; expected once");
  }

  GgufType read_type(std::string_view what) {
    auto type = static_cast<GgufType>(read<uint32_t>("type"));
    if (!is_known(type)) {
      refuse("the {} is of type {}, known are 0 to 12", what, static_cast<uint32_t>(type));
    }
    return type;
  }

  bool read_bool() {
    auto byte = read<uint8_t>("boolean");
    if (byte > 1) refuse("a boolean is {}, expected 0 or 1", byte);
    return byte == 1;
  }

  // Integers and booleans but u64.
  int64_t read_integer(GgufType type) {
    switch (type) {
      case GgufType::u8:
        return read<uint8_t>("value");
      case GgufType::i8:
        return read<int8_t>("value");
      case GgufType::u16:
        return read<uint16_t>("value");
      case GgufType::i16:
        return read<int16_t>("value");
      case GgufType::u32:
        return read<uint32_t>("value");
      case GgufType::i32:
        return read<int32_t>("value");
      case GgufType::boolean:
        return read_bool() ? 1 : 0;
      default:
        return read<int64_t>("value");
    }
  }

  double read_float(GgufType type) {
    return type == GgufType::f32 ? static_cast<double>(read<float>("value"))
                                 : read<double>("value");
  }

  GgufValue read_value(GgufType type) {
    switch (type) {
      case GgufType::string:
        return {type, read_string("string")};
      case GgufType::array:
        return {type, read_array()};
      case GgufType::boolean:
        return {type, read_bool()};
      case GgufType::f32:
      case GgufType::f64:
        return {type, read_float(type)};
      case GgufType::u64: {
        auto value = read<uint64_t>("value");
        if (value > kInt64Max) return {type, value};
        return {type, static_cast<int64_t>(value)};
      }
      default:
        return {type, read_integer(type)};
    }
  }

  GgufArray read_array() {
    GgufArray array;
    array.element_type = read_type("array element");
    if (array.element_type == GgufType::array) {
      refuse("arrays inside of arrays are not supported");
    }
    bool is_text = array.element_type == GgufType::string;
    uint64_t element_bytes = is_text ? kStringLengthBytes : fixed_bytes(array.element_type);
    uint64_t count = read<uint64_t>("array length");
    if (count > remaining() / element_bytes) {
      refuse(
          "the array has {} elements, but the {} bytes that follow hold at most {}", count,
          remaining(), remaining() / element_bytes);
    }
    // Before anything is reserved: what is reserved follows from bytes that are there.
    need(count * element_bytes, "array");
    switch (array.element_type) {
      case GgufType::string: {
        std::vector<std::string> texts;
        texts.reserve(count);
        for (uint64_t i = 0; i < count; ++i)
          texts.push_back(read_string("string in an array"));
        array.values = std::move(texts);
        break;
      }
      case GgufType::f32:
      case GgufType::f64: {
        std::vector<double> numbers(count);
        for (double& number : numbers)
          number = read_float(array.element_type);
        array.values = std::move(numbers);
        break;
      }
      case GgufType::u64: {
        std::vector<uint64_t> numbers(count);
        for (uint64_t& number : numbers)
          number = read<uint64_t>("value");
        bool all_fit = std::all_of(
            numbers.begin(), numbers.end(), [](uint64_t number) { return number <= kInt64Max; });
        if (all_fit) {
          array.values = std::vector<int64_t>(numbers.begin(), numbers.end());
        } else {
          array.values = std::move(numbers);
        }
        break;
      }
      default: {
        std::vector<int64_t> numbers(count);
        for (int64_t& number : numbers)
          number = read_integer(array.element_type);
        array.values = std::move(numbers);
        break;
      }
    }
    return array;
  }

  uint64_t read_alignment(const GgufHead& head) {
    auto entry = std::find_if(head.keys.begin(), head.keys.end(), [](const auto& key) {
      return key.first == "general.alignment";
    });
    if (entry == head.keys.end()) return kDefaultAlignment;
    where_ = "key 'general.alignment'";
    const auto* number = std::get_if<int64_t>(&entry->second.value);
    if (number == nullptr) {
      refuse("expected an integer, found {}", gguf_type_name(entry->second.type));
    }
    auto alignment = static_cast<uint64_t>(*number);
    if (*number <= 0 || !std::has_single_bit(alignment) || alignment < kMinAlignment ||
        alignment > kMaxAlignment) {
      refuse(
          "the alignment is {}, expected a power of two from {} to {}", *number, kMinAlignment,
          kMaxAlignment);
    }
    return alignment;
  }

  // The offset is left as it stands in the file: relative to where the data begins.
  GgufTensor read_tensor() {
    GgufTensor tensor;
    tensor.name = read_string("name");
    if (tensor.name.empty()) refuse("the name is empty");
    where_ = format("tensor {}", quoted_for_message(tensor.name));
    auto n_dims = read<uint32_t>("number of dimensions");
    if (n_dims == 0 || n_dims > kMaxDims) {
      refuse("the number of dimensions is {}, expected 1 to {}", n_dims, kMaxDims);
    }
    uint64_t n_elems = 1;
    for (uint32_t i = 0; i < n_dims; ++i) {
      auto dim = read<uint64_t>("dimension");
      if (dim == 0) refuse("dimension {} is 0, expected at least 1", i);
      if (!multiply(n_elems, dim, n_elems) || n_elems > kInt64Max) {
        refuse("the number of elements goes beyond 63 bits at dimension {} ({})", i, dim);
      }
      tensor.dims.push_back(dim);
    }
    tensor.ggml_type = read<uint32_t>("tensor type");
    const QuantTraits* traits = find_quant_traits(tensor.ggml_type);
    if (traits == nullptr) {
      refuse("tensor type {} is unknown or was removed from GGML", tensor.ggml_type);
    }
    if (tensor.dims[0] % traits->block_elems != 0) {
      refuse(
          "a row has {} elements, expected a multiple of {} for {}", tensor.dims[0],
          traits->block_elems, traits->name);
    }
    if (!multiply(n_elems / traits->block_elems, traits->block_bytes, tensor.size_bytes)) {
      refuse("the size of {} elements of {} goes beyond 64 bits", n_elems, traits->name);
    }
    tensor.offset = read<uint64_t>("offset");
    return tensor;
  }

  void place_tensors(GgufHead& head) {
    head.data_offset = (position_ + head.alignment - 1) / head.alignment * head.alignment;
    std::vector<std::string_view> names;
    names.reserve(head.tensors.size());
    for (const GgufTensor& tensor : head.tensors)
      names.emplace_back(tensor.name);
    refuse_repeated(names, "tensor");

    for (GgufTensor& tensor : head.tensors) {
      where_ = format("tensor {}", quoted_for_message(tensor.name));
      if (tensor.offset % head.alignment != 0) {
        refuse("offset {} is no multiple of the alignment {}", tensor.offset, head.alignment);
      }
      uint64_t begin = 0;
      uint64_t end = 0;
      if (!add(head.data_offset, tensor.offset, begin) || !add(begin, tensor.size_bytes, end) ||
          end > file_bytes_) {
        refuse(
            "its {} bytes at offset {} of the data reach past the end of the file ({} bytes); the "
            "file is cut short or damaged, fetch it again",
            tensor.size_bytes, tensor.offset, file_bytes_);
      }
      tensor.offset = begin;
    }
    std::vector<const GgufTensor*> by_offset;
    by_offset.reserve(head.tensors.size());
    for (const GgufTensor& tensor : head.tensors)
      by_offset.push_back(&tensor);
    std::sort(by_offset.begin(), by_offset.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return a->offset < b->offset;
    });
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const GgufTensor& before = *by_offset[i - 1];
      if (before.offset + before.size_bytes <= by_offset[i]->offset) continue;
      where_ = format("tensor {}", quoted_for_message(by_offset[i]->name));
      refuse(
          "begins at byte {}, inside of tensor {} ({} bytes from byte {} on)", by_offset[i]->offset,
          quoted_for_message(before.name), before.size_bytes, before.offset);
    }
  }

  std::span<const std::byte> prefix_;
  uint64_t file_bytes_;
  std::string_view name_;
  uint64_t position_ = 0;  // at most prefix_.size()
  std::string where_;      // what is being read, for messages
};

}  // namespace

const char* gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::u8:
      return "u8";
    case GgufType::i8:
      return "i8";
    case GgufType::u16:
      return "u16";
    case GgufType::i16:
      return "i16";
    case GgufType::u32:
      return "u32";
    case GgufType::i32:
      return "i32";
    case GgufType::f32:
      return "f32";
    case GgufType::boolean:
      return "bool";
    case GgufType::string:
      return "string";
    case GgufType::array:
      return "array";
    case GgufType::u64:
      return "u64";
    case GgufType::i64:
      return "i64";
    case GgufType::f64:
      return "f64";
  }
  return "unknown";
}

std::string quoted_for_message(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string quoted = "'";
  for (char c : text.substr(0, kLongest)) {
    auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      quoted += c;
    } else {
      quoted += format("\\x{:02x}", byte);
    }
  }
  if (text.size() > kLongest) quoted += "...";
  return quoted + "'";
}

size_t GgufArray::size() const {
  return std::visit([](const auto& elements) { return elements.size(); }, values);
}

uint64_t GgufTensor::n_elems() const {
  uint64_t product = 1;
  for (uint64_t dim : dims)
    product *= dim;
  return product;
}

std::optional<GgufHead>
parse_gguf_prefix(std::span<const std::byte> prefix, uint64_t file_bytes, std::string_view name) {
  try {
    return HeadParser(
               prefix.subspan(0, std::min<uint64_t>(prefix.size(), file_bytes)), file_bytes, name)
        .parse();
  } catch (const PrefixTooShort&) {
    return std::nullopt;
  }
}

GgufHead
parse_gguf_head(std::span<const std::byte> head, uint64_t file_bytes, std::string_view name) {
  std::optional<GgufHead> parsed = parse_gguf_prefix(head, file_bytes, name);
  if (!parsed.has_value()) {
    fail(ErrorKind::model, "{}: the head goes on behind the {} bytes read", name, head.size());
  }
  return *std::move(parsed);
}

}  // namespace nightsweep
