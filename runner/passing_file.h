// A file that is there while the program is: benchmarks write gigabytes that nobody asked to keep.
#pragma once

#include <string>

namespace nightsweep {

// Removes the file when it goes, and before SIGINT, SIGTERM or SIGHUP end the program. One at a
// time, on the thread that runs the command. Whoever owns the name makes the file.
class PassingFile {
 public:
  explicit PassingFile(std::string path);
  ~PassingFile();
  PassingFile(const PassingFile&) = delete;
  PassingFile& operator=(const PassingFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  static void handle(int signal_number);
  void remove() const;

  std::string path_;
  std::string partial_path_;  // while an AtomicFile writes it
};

}  // namespace nightsweep
