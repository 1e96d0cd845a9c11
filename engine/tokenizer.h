// Text to token ids and back, as the model file says.
//
// Kinds: byte-level BPE (`gpt2`) with the pre-tokenizer that `tokenizer.ggml.pre` names, and
// SentencePiece BPE by score (`llama`). A kind or a pre-tokenizer that is not known is refused by
// name, never guessed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"

namespace nightsweep {

// A piece of text and whether control tokens written in it are meant: text of the template is
// trusted, text of a user is not (it stays ordinary text).
struct TextSpan {
  std::string text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  // Throws Error(model) that names the key and what is wrong with it.
  static std::unique_ptr<Tokenizer> from_gguf(const GgufModel& model);
  virtual ~Tokenizer() = default;

  uint32_t n_tokens() const { return static_cast<uint32_t>(texts_.size()); }

  // Spans are encoded as one text: a run of ordinary text goes on over a border between spans.
  // add_special: BOS in front and EOS behind, where the model says so; BOS is not doubled when the
  // text begins with it.
  std::vector<uint32_t> encode(std::span<const TextSpan> spans, bool add_special) const;
  std::vector<uint32_t> encode(std::string_view text, bool add_special, bool parse_special) const;

  // The bytes of a token; a control token gives its written form. Not always whole characters.
  const std::string& token_bytes(uint32_t id) const { return bytes_[id]; }
  bool is_control(uint32_t id) const;
  // All bytes of the ids, control tokens written or dropped; invalid UTF-8 kept as it is.
  std::string decode(std::span<const uint32_t> ids, bool skip_special) const;

  bool is_end_of_generation(uint32_t id) const;
  const std::vector<uint32_t>& end_of_generation() const { return end_of_generation_; }
  // -1 where the model has none.
  int64_t bos() const { return bos_; }
  int64_t eos() const { return eos_; }
  bool adds_bos() const { return add_bos_; }
  bool adds_eos() const { return add_eos_; }
  // "gpt2/smollm": kind and rule, for people.
  const std::string& description() const { return description_; }

 protected:
  enum class TokenType : uint8_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
  };

  Tokenizer() = default;
  // Encodes ordinary text between special tokens. `first` is true where nothing stands before it.
  virtual void encode_ordinary(
      std::string_view text,
      bool after_special_or_first,
      std::vector<uint32_t>& out) const = 0;

  std::vector<std::string> texts_;  // as in the file
  std::vector<std::string> bytes_;  // what the token stands for
  std::vector<TokenType> types_;
  std::vector<uint32_t> end_of_generation_;
  int64_t bos_ = -1;
  int64_t eos_ = -1;
  int64_t unknown_ = -1;
  bool add_bos_ = false;
  bool add_eos_ = false;
  std::string description_;
};

// Holds back half characters. One a sequence.
class StreamDecoder {
 public:
  // Appends the token's bytes to the pending ones and returns what is complete.
  std::string push(std::string_view bytes);
  // The end: what is still pending, invalid bytes as U+FFFD.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace nightsweep
