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
  std::vector<Value> values;
  size_t index = 0;
  std::optional<Value> last_checked;  // of loop.changed()
};

}  // namespace nightsweep::jinja
