// Walks the tree of a template: statements to output, expressions to values.
#pragma once

#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/jinja_ast.h"
#include "engine/jinja_runtime.h"

namespace nightsweep::jinja {

// The variables of one frame. What it lacks its parent may have.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> variables;
  bool is_captured = false;  // a macro refers to it: it lives to the end

  // Null when the frame does not have it.
  const Value* find(Symbol symbol) const;
  void set(Symbol symbol, Value value);
};

class Evaluator {
 public:
  // `globals`: by symbol, null where a name is no global.
  Evaluator(
      const Tree& tree,
      const std::vector<const Builtin*>& globals,
      const TemplateLimits& limits,
      int64_t now_unix_s)
      : tree_(tree),
        globals_(globals),
        runtime_(limits, now_unix_s),
        root_(tree.symbols.size()),
        missing_(tree.symbols.size()) {}

  Runtime& runtime() { return runtime_; }
  void set_root(Symbol symbol, Value value) { root_[symbol] = value; }
  MarkedString run();

  // For macros and recursive loops.
  Value call_macro(const MacroDefinition& macro, Scope* closure, const Arguments& arguments);
  Value call_loop(const ForStmt& loop, Scope* scope, Value iterable, size_t depth);
  // Whether the item passes the loop's condition.
  bool admits(const ForStmt& loop, Value item, Scope* scope);

 private:
  enum class Flow : uint8_t { normal, loop_break, loop_continue };
  class Frame;

  Flow run_block(const Block& block, Scope* scope, MarkedString& out);
  Flow run_statement(const Stmt& stmt, Scope* scope, MarkedString& out);
  Flow run_inner(const Block& block, const Locals& locals, Scope* scope, MarkedString& out);
  Flow run_if(const IfStmt& stmt, Scope* scope, MarkedString& out);
  Flow run_for(const ForStmt& stmt, Scope* scope, Value iterable, size_t depth, MarkedString& out);
  void run_set_block(const SetBlockStmt& stmt, Scope* scope);
  void run_call_block(const CallBlockStmt& stmt, Scope* scope, MarkedString& out);
  void run_with(const WithStmt& stmt, Scope* scope, MarkedString& out);
  // The text of a block through filters, which see the block's variables.
  Value capture(const Block& block, const Locals& locals, Scope* scope, const Expr& filters);
  void write(Value value, MarkedString& out);
  void check_output(const MarkedString& out) const;
  void assign(const Target& target, Value value, Scope* scope);
  Value new_macro(const MacroDefinition& macro, Scope* scope);

  Value eval(const Expr& expr, Scope* scope);
  // Both count what they go over: frames of a hostile template are large.
  Value lookup(Symbol symbol, const Scope* scope);
  void set_variable(Scope* scope, Symbol symbol, Value value);
  Value missing(Symbol symbol);
  void bind_parameters(const MacroDefinition& macro, const Arguments& arguments, Scope* scope);
  void bind_rest(const MacroDefinition& macro, const Arguments& arguments, Scope* scope);
  void set_named(std::string_view name, Value value, Scope* scope);
  Value eval_dict(const DictExpr& expr, Scope* scope);
  Value eval_concat(const ConcatExpr& expr, Scope* scope);
  Value eval_logical(const LogicalExpr& expr, Scope* scope);
  Value eval_compare(const CompareExpr& expr, Scope* scope);
  bool holds(CompareOperator op, Value left, Value right);
  Value eval_conditional(const ConditionalExpr& expr, Scope* scope);
  Value eval_slice(const SliceExpr& expr, Scope* scope);
  Value eval_call(const CallExpr& expr, Scope* scope);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& items, Scope* scope);
  Arguments eval_arguments(const CallArguments& arguments, Scope* scope);

  const Tree& tree_;
  const std::vector<const Builtin*>& globals_;
  Runtime runtime_;
  std::vector<std::optional<Value>> root_;
  std::vector<std::optional<Value>> missing_;  // by symbol, made when needed
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  uint32_t n_calls_ = 0;
  Value captured_;
};

// A scope that goes back to the pool unless a macro holds it.
class Evaluator::Frame {
 public:
  Frame(Evaluator& evaluator, const Locals& locals, Scope* parent);
  ~Frame() {
    if (!scope_->is_captured) evaluator_.free_scopes_.push_back(scope_);
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  Scope* scope() const { return scope_; }

 private:
  Evaluator& evaluator_;
  Scope* scope_;
};

}  // namespace nightsweep::jinja
