// The variable `loop` of a for statement.
#pragma once

#include <vector>

#include "engine/jinja_eval.h"

namespace nightsweep::jinja {

struct LoopObject : HostObject {
  LoopObject(Evaluator& walker, const ForStmt& for_loop, Scope* outer_scope, size_t depth0)
      : evaluator(walker), loop(for_loop), scope(outer_scope), depth(depth0) {}

  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
  Value call(Runtime& runtime, const Arguments& arguments) override;

  Evaluator& evaluator;
  const ForStmt& loop;
  Scope* scope;
  size_t depth;
  // A loop over a list sees what its body does to the list, as in Python.
  const std::vector<Value>& elements() const { return live != nullptr ? live->items : values; }
  int64_t first_length();

  const Sequence* live = nullptr;
  std::vector<Value> values;  // without a live list
  size_t index = 0;
  Value previous;
  Value current;
  std::optional<int64_t> length;      // as it was when the template first asked
  std::optional<Value> last_checked;  // of loop.changed()
};

}  // namespace nightsweep::jinja
