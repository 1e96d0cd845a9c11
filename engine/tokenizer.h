// Text to token ids and back, as the model file says.
//
// Kinds: byte-level BPE (`gpt2`) with the pre-tokenizer that `tokenizer.ggml.pre` names, BPE over
// characters (`gemma4`), and SentencePiece BPE by score (`llama`). A kind or a pre-tokenizer that
// is not known is refused by name, never guessed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"
#include "engine/special_tokens.h"
#include "engine/text_encoder.h"
#include "engine/token_data.h"

namespace nightsweep {

// A piece of text and whether control tokens written in it are meant: text of the template is
// trusted, text of a user is not (it stays ordinary text).
struct TextSpan {
  std::string text;
  bool parse_special = false;
};

// Immutable after construction: any number of threads may use one.
class Tokenizer {
 public:
  // Throws Error(model) that names the key and what is wrong with it.
  static std::unique_ptr<Tokenizer> from_gguf(const GgufModel& model);
  // The same from plain data. `data.types` may be empty: all tokens are normal then, but for those
  // that the keys name.
  explicit Tokenizer(TokenData data);

  uint32_t n_tokens() const { return static_cast<uint32_t>(bytes_.size()); }

  // Spans are encoded as one text: a run of ordinary text goes on over a border between spans, and
  // a control token is one only where all of its text lies in spans that parse them.
  // add_special: BOS in front and EOS behind, where the model says so; BOS is not doubled when the
  // text begins with it.
  std::vector<uint32_t> encode(std::span<const TextSpan> spans, bool add_special) const;
  std::vector<uint32_t> encode(std::string_view text, bool add_special, bool parse_special) const;

  // The bytes of a token; a control token gives its written form. Not always whole characters.
  // REQUIRES: id < n_tokens(), here and below.
  const std::string& token_bytes(uint32_t id) const { return bytes_[id]; }
  bool is_control(uint32_t id) const { return is_control_type(types_[id]); }
  // All bytes of the ids, control tokens written or dropped; invalid UTF-8 kept as it is.
  std::string decode(std::span<const uint32_t> ids, bool skip_special) const;

  bool is_end_of_generation(uint32_t id) const;
  // The end token that the file names first, the others in rising order.
  const std::vector<uint32_t>& end_of_generation() const { return end_of_generation_; }
  // -1 where the model has none.
  int64_t bos() const { return bos_; }
  int64_t eos() const { return eos_; }
  bool adds_bos() const { return adds_bos_; }
  bool adds_eos() const { return adds_eos_; }
  // "gpt2/smollm": kind and rule, for people.
  const std::string& description() const { return description_; }

 private:
  void set_up_bpe(const TokenData& data);
  void set_up_character_bpe(const TokenData& data);
  void set_up_spm(TokenData& data);
  void set_up_special_ids(const TokenData& data);
  void set_up_end_of_generation(const TokenData& data);
  void set_up_bytes(TokenData& data);

  std::vector<uint32_t> encode_ranges(
      std::string_view text,
      const std::vector<SpecialTokens::Range>& trusted,
      bool add_special) const;

  std::vector<std::string> bytes_;  // what each token stands for
  std::vector<TokenType> types_;
  std::vector<uint32_t> end_of_generation_;
  int64_t bos_ = -1;
  int64_t eos_ = -1;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
  std::string description_;
  std::unique_ptr<SpecialTokens> special_tokens_;
  std::unique_ptr<TextEncoder> encoder_;
};

// Gives out whole characters only. One a sequence.
class StreamDecoder {
 public:
  // Appends the token's bytes to the pending ones and returns what is complete. Bytes that no
  // continuation could make a character become U+FFFD, as Python's errors="replace" has it; at most
  // three stay pending.
  std::string push(std::string_view bytes);
  // The end: what is still pending becomes U+FFFD.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace nightsweep
