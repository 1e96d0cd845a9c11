// The lock that makes a process the one worker of a queue: flock on PATH.lock. The kernel drops it
// when the process ends in whatever way, so it is never stale.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"

namespace nightsweep {

class WorkerLock {
 public:
  explicit WorkerLock(const std::string& queue_path) : path_(queue_path + ".lock") {}

  // Takes it and writes the holder into the file, for the message that others get. True: the holder
  // before ended in order, as far as the file tells. Throws Error(queue) with the holder when it is
  // held; Error for what open and write can meet.
  bool take(int64_t pid, const std::string& host, int64_t started_ms);
  // Gives it back and leaves word that this end was orderly, also when the database cannot be
  // written any more. Without it the lock goes with this object, as it would with the process.
  void end_in_order() noexcept;
  bool is_taken() const { return fd_.is_open(); }
  // Whether anybody holds it now.
  bool is_held() const;

 private:
  std::string path_;
  FileDescriptor fd_;
};

}  // namespace nightsweep
