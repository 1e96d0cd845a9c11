// Where data and messages go: data to stdout, messages to stderr.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "runner/options.h"

namespace nightsweep {

// The reader of stdout has gone (`| head`): the program ends quietly.
struct ClosedPipe {};

// Where a command that looks inside writes its lines: stdout, or a test.
using WriteData = std::function<void(std::string_view)>;

// Takes data, in pieces.
class DataSink {
 public:
  virtual ~DataSink() = default;
  virtual void write(std::string_view data) = 0;
  // Complete. Without it a file does not appear.
  virtual void commit() = 0;
};

// Unbuffered. Throws ClosedPipe, or Error(storage).
class Stdout : public DataSink {
 public:
  void write(std::string_view data) override;
  void commit() override {}
};

// A file that appears at once, or stdout where `path` is empty or "-".
std::unique_ptr<DataSink> open_output(const std::string& path);

// Refuses (Error(usage)) an output file that would replace what the command reads or keeps;
// `what`: "the input file".
void refuse_same_file(
    const std::string& output,
    const std::string& other,
    std::string_view what = "the input file");

// Throws what open_output would, before the work and not after it.
void check_output(const std::string& path);

// Raw text to stderr, whatever the log level.
void write_message(std::string_view text);

bool color_wanted(ColorChoice choice, int fd);

}  // namespace nightsweep
