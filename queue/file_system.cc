#include "queue/file_system.h"

#include <sys/vfs.h>

#include <cerrno>

#include "base/error.h"

namespace nightsweep {

// Numbers from linux/magic.h and statfs(2); 9p is what WSL mounts Windows drives with.
const char* name_if_shared(uint64_t statfs_type) {
  switch (statfs_type & 0xFFFFFFFF) {
    case 0x6969:
      return "NFS";
    case 0x517B:
    case 0xFE534D42:
      return "SMB";
    case 0xFF534D42:
      return "CIFS";
    case 0x65735546:
      return "FUSE";
    case 0x01021997:
      return "9p";
    case 0x5346414F:
    case 0x6B414653:
      return "AFS";
    case 0x73757245:
      return "Coda";
    case 0x00C36400:
      return "Ceph";
    case 0x0BD00BD0:
      return "Lustre";
    default:
      return nullptr;
  }
}

void refuse_shared_file_system(const std::string& folder) {
  struct statfs info = {};
  if (::statfs(folder.c_str(), &info) != 0) fail_errno(ErrorKind::queue, errno, folder);
  if (const char* name = name_if_shared(static_cast<uint64_t>(info.f_type))) {
    fail(
        ErrorKind::queue,
        "{}: expected a local file system, found {}, whose locks do not protect a database "
        "(choose a local place with --queue)",
        folder, name);
  }
}

}  // namespace nightsweep
