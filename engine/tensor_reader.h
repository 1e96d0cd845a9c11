// TensorReader: small reads outside the sweep (embedding rows, norms), straight from the file, past
// the page cache where the file system allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/file_reader.h"
#include "engine/gguf.h"

namespace nightsweep {

// Thread-compatible. Keeps the files open, and 2 MiB of memory to read into.
// Throws as ReadQueue does: Error(model) for a file that ended or changed, Error(storage) for the
// disk; it may be used again after that.
class TensorReader {
 public:
  // source: as in StreamOptions; a fallback is logged at debug level, since WeightStream says it.
  explicit TensorReader(
      const GgufModel& model,
      const std::string& source = "auto",
      const FileReaderFactory& open_reader = open_file_reader);
  ~TensorReader();
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  // Throws Error(model) when a file is not what it was when this was made.
  void check_files() const;

  // Reads bytes [offset, offset + size_bytes) of the tensor's data.
  void read(const GgufTensor& tensor, uint64_t offset, uint64_t size_bytes, std::byte* out);
  // Rows `ids` of a matrix, one after another, in any order, also repeated; many reads in flight,
  // neighbouring and equal rows in one.
  void read_rows(const GgufTensor& tensor, std::span<const uint32_t> ids, std::byte* out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nightsweep
