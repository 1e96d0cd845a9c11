// What a model file says about its tokens, before it is made a tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf.h"

namespace nightsweep {

// Numbers are the file's own.
enum class TokenType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

// Written by nobody but the template and the engine: user text never becomes one unasked.
constexpr bool is_control_type(TokenType type) {
  return type == TokenType::control || type == TokenType::unknown;
}

struct TokenData {
  std::string source;              // how messages about it begin: the file's name
  std::string architecture;        // general.architecture; may be empty
  std::string model;               // tokenizer.ggml.model
  std::optional<std::string> pre;  // tokenizer.ggml.pre
  std::vector<std::string> texts;
  std::vector<TokenType> types;     // one a token
  std::vector<float> scores;        // one a token, or none
  std::vector<std::string> merges;  // "left right", best first

  // Tokens whose match takes the blanks beside it along: those in front, those behind.
  std::vector<uint32_t> strips_left;
  std::vector<uint32_t> strips_right;

  std::optional<uint64_t> bos;
  std::optional<uint64_t> eos;
  std::optional<uint64_t> unknown;
  // Keys that name a token at which an answer ends, beside eos.
  struct EndKey {
    std::string key;
    uint64_t id = 0;
  };
  std::vector<EndKey> ends;
  std::optional<bool> adds_bos;
  std::optional<bool> adds_eos;
  std::optional<bool> adds_space_prefix;
};

// Throws Error(model) that names the key: one of the wrong type, or arrays of unequal lengths.
TokenData read_token_data(const GgufModel& model);

// `<0x0A>` gives 10; nothing else is the text of a byte token.
std::optional<uint8_t> byte_of_token_text(std::string_view text);
// Of a token whose type is byte; throws Error(model), which names the token, for another text.
uint8_t require_byte_of_token(const TokenData& data, size_t id);

}  // namespace nightsweep
