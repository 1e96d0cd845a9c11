// HostMapping: the model's files as the page cache holds them, mapped read-only and registered with
// the device, so that it copies from them as from page-locked memory. Nothing is read or copied by
// us, and the pages stay locked as long as the mapping lives.
//
// Nobody but the device may read through it: a file that was truncated meanwhile has no pages to
// touch. What the device copied then is wrong, and whoever uses it must look whether the files are
// unchanged before it believes what came of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/file_reader.h"
#include "kernels/device.h"

namespace nightsweep {

// The bytes of a file that are needed: [begin, end); equal: none.
struct FileSpan {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size_bytes() const { return end - begin; }
};

class HostMapping {
 public:
  // Maps and registers spans[f] of file f, reading what the page cache lacks. `device` must outlive
  // it. Throws Error(device) that names the file and what was refused.
  HostMapping(const FileSet& files, const std::vector<FileSpan>& spans, Device& device);
  ~HostMapping();
  HostMapping(const HostMapping&) = delete;
  HostMapping& operator=(const HostMapping&) = delete;

  std::byte* at(uint32_t file, uint64_t offset) const {
    return maps_[file].data + (offset - maps_[file].begin);
  }

 private:
  struct Map {
    uint64_t begin = 0;  // of the file
    std::byte* data = nullptr;
    uint64_t size_bytes = 0;
    std::unique_ptr<HostRegistration> registration;
  };
  void unmap();

  std::vector<Map> maps_;  // by file
};

// Which share of a span the page cache holds, from samples; nothing is read in. 0 where the file
// system cannot tell.
double cached_share(const FileSet& files, uint32_t file, const FileSpan& span);

}  // namespace nightsweep
