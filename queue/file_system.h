// Which file systems can hold a queue: those whose locks and syncs can be trusted.
#pragma once

#include <cstdint>
#include <string>

namespace nightsweep {

// Name of a network or FUSE file system for f_type of statfs(2); null for any other.
const char* name_if_shared(uint64_t statfs_type);

// Throws Error(queue) when `folder` lies on one.
void refuse_shared_file_system(const std::string& folder);

}  // namespace nightsweep
