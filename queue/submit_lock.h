// Says that whoever brings a batch in is alive: a lock on one byte of PATH.submit, at a place that
// the batch's public id names. The kernel drops it when the process ends in whatever way, so it is
// never stale, and a copy of the queue in another place has none.
#pragma once

#include <string>

#include "base/file.h"

namespace nightsweep {

class SubmitLock {
 public:
  explicit SubmitLock(const std::string& queue_path) : path_(queue_path + ".submit") {}

  // Holds it until this object goes. Creates the file with the mode of the queue. REQUIRES: an id
  // that was drawn for this. Throws Error(queue) when the file cannot be opened or locked.
  void take(const std::string& public_id);
  // Whether anybody holds it, also another object of this process.
  bool is_held(const std::string& public_id) const;

 private:
  std::string path_;
  FileDescriptor fd_;
};

}  // namespace nightsweep
