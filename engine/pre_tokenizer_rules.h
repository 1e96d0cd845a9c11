// How the families of byte-level BPE cut a text into pieces before they merge: one rule for each
// name that `tokenizer.ggml.pre` may have, with what else goes with that family.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nightsweep {

struct PreTokenizerRule {
  std::vector<std::string_view> names;  // values of tokenizer.ggml.pre
  // Regular expressions over characters, applied in turn, each to the pieces that the one before
  // has left. What no match covers stays a piece of its own.
  std::vector<std::string_view> patterns;
  // The same over bytes, after those: for families that cut once more when the text has already
  // become bytes.
  std::vector<std::string_view> byte_patterns = {};
  bool normalizes_nfc = false;
  // A piece that is a token as a whole is that token, whatever the merges say.
  bool ignores_merges = false;
  bool adds_bos = false;  // unless the file says otherwise
};

// Null when the name is not known. The rules live for ever.
const PreTokenizerRule* find_pre_tokenizer_rule(std::string_view name);
// "command-r, gpt-2, …": for messages.
std::string known_pre_tokenizer_names();

// The rule of a file of this `general.architecture` that names none; empty where the architecture
// has no family of its own.
std::string_view pre_tokenizer_of_architecture(std::string_view architecture);

}  // namespace nightsweep
