// The variable `loop` of a for statement.
#pragma once

#include <vector>

#include "engine/jinja_eval.h"

namespace nightsweep::jinja {

// Takes its items one by one, as Python's iterators do: the condition of an item is tried when its
// turn comes, and a loop over a list sees what its body does to the list.
struct LoopObject : HostObject {
  LoopObject(Evaluator& walker, const ForStmt& for_loop, Scope* outer_scope, size_t depth0)
      : evaluator(walker), loop(for_loop), scope(outer_scope), depth(depth0) {}

  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
  Value call(Runtime& runtime, const Arguments& arguments) override;

  void start(Runtime& runtime, Value iterable);
  // Goes to the next item: `current`. False when there is none.
  bool advance(Runtime& runtime);

  Evaluator& evaluator;
  const ForStmt& loop;
  Scope* scope;
  size_t depth;
  size_t index = 0;
  Value current;
  std::optional<Value> last_checked;  // of loop.changed()

 private:
  const std::vector<Value>& elements() const { return live_ != nullptr ? live_->items : values_; }
  std::optional<Value> pull(Runtime& runtime);
  const std::optional<Value>& peek(Runtime& runtime);
  int64_t length(Runtime& runtime);

  const Sequence* live_ = nullptr;
  std::vector<Value> values_;   // without a live list
  const Dict* dict_ = nullptr;  // under the loop: it must not change its size
  size_t dict_size_ = 0;
  size_t place_ = 0;  // of the next element
  bool is_started_ = false;
  bool is_exhausted_ = false;
  bool are_admitted_ = false;  // the rest has passed the condition already
  Value previous_;
  std::optional<Value> next_;  // taken before its turn
  std::optional<int64_t> length_;
};

}  // namespace nightsweep::jinja
