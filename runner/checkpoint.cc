#include "runner/checkpoint.h"

#include <fmt/format.h>

#include <iterator>

namespace nightsweep {

std::string checkpoint_to_text(const std::vector<TokenIds>& choices) {
  std::string text = "[";
  for (size_t i = 0; i < choices.size(); ++i) {
    text += i == 0 ? "[" : ",[";
    for (size_t j = 0; j < choices[i].size(); ++j) {
      if (j > 0) text += ',';
      fmt::format_to(std::back_inserter(text), "{}", choices[i][j]);
    }
    text += ']';
  }
  return text + "]";
}

std::optional<std::vector<TokenIds>>
checkpoint_from_text(std::string_view text, size_t n_choices, uint32_t n_vocab) {
  Json root;
  try {
    root = Json::parse(text);
  } catch (const JsonError&) {
    return std::nullopt;
  }
  if (!root.is_array() || root.as_array().size() != n_choices) return std::nullopt;
  std::vector<TokenIds> choices;
  for (const Json& list : root.as_array()) {
    if (!list.is_array()) return std::nullopt;
    TokenIds& ids = choices.emplace_back();
    for (const Json& id : list.as_array()) {
      if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= n_vocab) {
        return std::nullopt;
      }
      ids.push_back(static_cast<uint32_t>(id.as_integer()));
    }
  }
  return choices;
}

}  // namespace nightsweep
