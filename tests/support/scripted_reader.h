// A reader that behaves as badly as a disk may: late, out of order, in short pieces, with a failure
// at a chosen place. Everything follows from the seed.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/file_reader.h"

namespace nightsweep {

// Lets reads end; closed, they never do until it is opened. Shared by a test and its reader.
class Gate {
 public:
  void close() { set(false); }
  void open() { set(true); }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_open_; });
  }

 private:
  void set(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
};

struct ReaderScript {
  uint64_t seed = 1;
  uint64_t alignment = kDirectAlignment;
  bool is_out_of_order = true;
  bool is_short = true;  // cuts reads, also at places that are not aligned
  bool is_late = true;   // holds back what could end, and sleeps a little
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  // What reads get that touch this byte of this file: 0 end of file, below 0 -errno.
  bool has_failure = false;
  uint32_t failure_file = 0;
  uint64_t failure_offset = 0;
  int64_t failure_result = 0;
  uint32_t n_reads_before_failure = 0;  // so many that touch it succeed first
  std::string memory_refusal;           // of register_memory(); empty: it takes any
  // Its memory is now registered.
  std::shared_ptr<std::atomic<bool>> has_memory = std::make_shared<std::atomic<bool>>(false);
};

class ScriptedReader final : public FileReader {
 public:
  ScriptedReader(const FileReaderOptions& options, ReaderScript script)
      : FileReader(
            FileSet::open(options.paths, options.file_bytes, 0, options.identities),
            "scripted",
            script.alignment,
            options.depth),
        script_(std::move(script)),
        random_(script_.seed) {}

  void submit(const FileRead& read) override { in_flight_.push_back(read); }

  std::string register_memory(std::span<std::byte> /*memory*/) override {
    *script_.has_memory = script_.memory_refusal.empty();
    return script_.memory_refusal;
  }
  void forget_memory() override { *script_.has_memory = false; }

  void wait(std::vector<FileReadEnd>& ended) override {
    script_.gate->pass();
    if (script_.is_late && draw(4) == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(draw(200)));
    }
    const size_t n = script_.is_late ? 1 + draw(in_flight_.size()) : in_flight_.size();
    for (size_t i = 0; i < n; ++i) {
      const size_t which = script_.is_out_of_order ? draw(in_flight_.size()) : 0;
      const FileRead read = in_flight_[which];
      in_flight_.erase(in_flight_.begin() + static_cast<ptrdiff_t>(which));
      ended.push_back({read.tag, perform(read)});
    }
  }

 private:
  uint64_t draw(uint64_t n) { return random_() % n; }

  int64_t perform(const FileRead& read) {
    const bool touches_failure = script_.has_failure && read.file == script_.failure_file &&
                                 script_.failure_offset >= read.offset &&
                                 script_.failure_offset < read.offset + read.size_bytes;
    if (touches_failure && script_.n_reads_before_failure-- == 0) {
      script_.n_reads_before_failure = 0;
      return script_.failure_result;
    }
    if (script_.is_short && draw(8) == 0) return draw(2) == 0 ? -EINTR : -EAGAIN;
    uint64_t size_bytes = read.size_bytes;
    if (script_.is_short && draw(2) == 0) size_bytes = 1 + draw(size_bytes);
    const ssize_t n =
        ::pread(files_.fd(read.file), read.into, size_bytes, static_cast<off_t>(read.offset));
    return n < 0 ? -errno : n;
  }

  ReaderScript script_;
  std::mt19937_64 random_;
  std::vector<FileRead> in_flight_;
};

inline FileReaderFactory scripted(const ReaderScript& script) {
  return [script](const FileReaderOptions& options) -> std::unique_ptr<FileReader> {
    return std::make_unique<ScriptedReader>(options, script);
  };
}

}  // namespace nightsweep
