#include "engine/host_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/units.h"

namespace nightsweep {

HostMapping::HostMapping(const FileSet& files, const std::vector<FileSpan>& spans, Device& device)
    : maps_(spans.size()) {
  try {
    for (uint32_t file = 0; file < spans.size(); ++file) {
      if (spans[file].size_bytes() == 0) continue;
      Map& map = maps_[file];
      map.begin = align_down(spans[file].begin, kDirectAlignment);
      map.size_bytes = spans[file].end - map.begin;
      void* const address = ::mmap(
          nullptr, map.size_bytes, PROT_READ, MAP_SHARED, files.fd(file),
          static_cast<off_t>(map.begin));
      if (address == MAP_FAILED) {
        fail(
            ErrorKind::device, "{}: mapping {} of it: {}", files.path(file),
            size_text(map.size_bytes), errno_text(errno));
      }
      map.data = static_cast<std::byte*>(address);
      // Large reads ahead; a page that cannot be read shows here and not as a signal.
      ::madvise(address, map.size_bytes, MADV_SEQUENTIAL);
      if (::madvise(address, map.size_bytes, MADV_POPULATE_READ) != 0 && errno != EINVAL) {
        fail(
            ErrorKind::device, "{}: reading {} into the page cache: {}", files.path(file),
            size_text(map.size_bytes), errno_text(errno));
      }
      map.registration = device.register_host(map.data, map.size_bytes);
    }
  } catch (...) {
    unmap();
    throw;
  }
}

HostMapping::~HostMapping() {
  unmap();
}

void HostMapping::unmap() {
  for (Map& map : maps_) {
    map.registration.reset();
    if (map.data != nullptr) ::munmap(map.data, map.size_bytes);
    map.data = nullptr;
  }
}

double cached_share(const FileSet& files, uint32_t file, const FileSpan& span) {
  constexpr uint64_t kSamples = 512;
  constexpr uint64_t kMostMissing = kSamples / 32;
  if (span.size_bytes() == 0) return 1;
  // A read that must not wait for the disk fails where the page is not there. A descriptor of its
  // own, past whose offset nothing is read ahead.
  const FileDescriptor fd(::open(files.path(file).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return 0;
  ::posix_fadvise(fd.value(), 0, 0, POSIX_FADV_RANDOM);
  uint64_t n_there = 0;
  uint64_t n_missing = 0;
  for (uint64_t i = 0; i < kSamples && n_missing < kMostMissing; ++i) {
    const uint64_t at = span.begin + span.size_bytes() / kSamples * i;
    char byte = 0;
    const iovec into{&byte, 1};
    const ssize_t n = ::preadv2(fd.value(), &into, 1, static_cast<off_t>(at), RWF_NOWAIT);
    ++(n == 1 ? n_there : n_missing);
  }
  return static_cast<double>(n_there) / static_cast<double>(n_there + n_missing);
}

}  // namespace nightsweep
