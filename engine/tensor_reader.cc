#include "engine/tensor_reader.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "engine/read_queue.h"

namespace nightsweep {

namespace {

constexpr uint32_t kSlotsInFlight = 32;
constexpr uint64_t kSlotBytes = 64 << 10;
// Whatever it begins at, a part of this size and the blocks around it fit into a slot.
constexpr uint64_t kMaxPartBytes = kSlotBytes - 2 * kDirectAlignment;

// Bytes of the file that go to one place.
struct Part {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  std::byte* out = nullptr;
};

// Parts [first, end) of a sorted list, read at once.
struct Window {
  size_t first = 0;
  size_t end = 0;
  uint64_t offset = 0;      // of its first byte that is wanted
  uint64_t size_bytes = 0;  // up to the last one
};

// Takes in parts while they touch the blocks read so far and fit into a slot.
Window next_window(const std::vector<Part>& parts, size_t first) {
  Window window{first, first + 1, parts[first].offset, parts[first].size_bytes};
  const uint64_t begin = align_down(window.offset, kDirectAlignment);
  for (; window.end < parts.size(); ++window.end) {
    const Part& part = parts[window.end];
    const uint64_t part_end = part.offset + part.size_bytes;
    const uint64_t read_end = align_up(window.offset + window.size_bytes, kDirectAlignment);
    if (part.offset > read_end || align_up(part_end, kDirectAlignment) - begin > kSlotBytes) break;
    window.size_bytes = std::max(window.size_bytes, part_end - window.offset);
  }
  return window;
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

}  // namespace

struct TensorReader::State {
  std::unique_ptr<std::byte, Free> slots;
  std::unique_ptr<FileReader> reader;

  std::byte* slot(uint64_t index) const { return slots.get() + index * kSlotBytes; }
  void read_parts(uint32_t file, const std::vector<Part>& parts);
};

// REQUIRES: parts are sorted by offset, none larger than kMaxPartBytes.
void TensorReader::State::read_parts(uint32_t file, const std::vector<Part>& parts) {
  const uint32_t n_slots = reader->depth();
  ReadQueue queue(*reader, 0, kSlotBytes);
  std::vector<Window> windows(n_slots);  // by slot
  std::vector<uint64_t> free_slots(n_slots);
  std::iota(free_slots.begin(), free_slots.end(), uint64_t{0});

  size_t next_part = 0;
  while (next_part < parts.size() || !queue.is_idle()) {
    while (next_part < parts.size() && !free_slots.empty()) {
      const uint64_t index = free_slots.back();
      free_slots.pop_back();
      const Window window = next_window(parts, next_part);
      next_part = window.end;
      windows[index] = window;
      ReadRange range = covering_range(file, window.offset, window.size_bytes, slot(index));
      range.tag = index;
      queue.push(range);
    }
    for (uint64_t index : queue.advance()) {
      const Window& window = windows[index];
      const uint64_t begin = align_down(window.offset, kDirectAlignment);
      for (size_t i = window.first; i < window.end; ++i) {
        std::memcpy(parts[i].out, slot(index) + (parts[i].offset - begin), parts[i].size_bytes);
      }
      free_slots.push_back(index);
    }
  }
}

TensorReader::TensorReader(
    const GgufModel& model,
    const std::string& source,
    const FileReaderFactory& open_reader)
    : state_(std::make_unique<State>()) {
  state_->reader = open_reader(
      {.paths = model.paths(),
       .file_bytes = model.file_bytes(),
       .identities = model.file_identities(),
       .source = source,
       .depth = kSlotsInFlight,
       .warns = false});
  const size_t size_bytes = state_->reader->depth() * kSlotBytes;
  state_->slots.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, size_bytes)));
  if (state_->slots == nullptr) {
    fail(ErrorKind::device, "no memory for reading tensors: {} bytes", size_bytes);
  }
}

TensorReader::~TensorReader() = default;

void TensorReader::check_files() const {
  state_->reader->files().check_unchanged();
}

void TensorReader::read(
    const GgufTensor& tensor,
    uint64_t offset,
    uint64_t size_bytes,
    std::byte* out) {
  if (offset > tensor.size_bytes || size_bytes > tensor.size_bytes - offset) {
    fail(
        ErrorKind::internal, "{}: bytes [{}, {} + {}) of {}", tensor.name, offset, offset,
        size_bytes, tensor.size_bytes);
  }
  std::vector<Part> parts;
  for (uint64_t at = 0; at < size_bytes; at += kMaxPartBytes) {
    parts.push_back(
        {tensor.offset + offset + at, std::min(kMaxPartBytes, size_bytes - at), out + at});
  }
  state_->read_parts(tensor.file, parts);
}

void TensorReader::read_rows(
    const GgufTensor& tensor,
    std::span<const uint32_t> ids,
    std::byte* out) {
  const uint64_t n_rows = tensor.n_elems() / std::max<uint64_t>(tensor.dims[0], 1);
  const uint64_t row_bytes = tensor.size_bytes / std::max<uint64_t>(n_rows, 1);
  std::vector<Part> parts;
  parts.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= n_rows) {
      fail(ErrorKind::internal, "{}: row {} of {}", tensor.name, ids[i], n_rows);
    }
    for (uint64_t at = 0; at < row_bytes; at += kMaxPartBytes) {
      parts.push_back(
          {tensor.offset + ids[i] * row_bytes + at, std::min(kMaxPartBytes, row_bytes - at),
           out + i * row_bytes + at});
    }
  }
  std::sort(
      parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.offset < b.offset; });
  state_->read_parts(tensor.file, parts);
}

}  // namespace nightsweep
