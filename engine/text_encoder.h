// What turns ordinary text into tokens: one implementation a kind of tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nightsweep {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  // Appends the ids of `text`: all that stands between two special tokens, or between one and the
  // text's begin or end. Thread-safe.
  virtual void encode(std::string_view text, std::vector<uint32_t>& out) const = 0;

  // The bytes that an ordinary token of this text in the file stands for.
  virtual std::string bytes_of(std::string_view token_text) const = 0;
};

// Says, once in a process, that bytes which the vocabulary has no token for were left out.
void say_once_that_bytes_are_dropped(std::string_view bytes);

}  // namespace nightsweep
