// The tree of a compiled template. Immutable once parsed, shared by all renderings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/jinja_value.h"

namespace nightsweep::jinja {

struct Builtin;

// A name of the template as a number.
using Symbol = uint32_t;

class SymbolTable {
 public:
  Symbol intern(std::string_view name) {
    auto [it, is_new] = symbols_.try_emplace(std::string(name), static_cast<Symbol>(names_.size()));
    if (is_new) names_.push_back(it->first);
    return it->second;
  }
  // Null when the template does not use the name.
  const Symbol* find(const std::string& name) const {
    auto it = symbols_.find(name);
    return it == symbols_.end() ? nullptr : &it->second;
  }
  const std::string& name(Symbol symbol) const { return names_[symbol]; }
  size_t size() const { return names_.size(); }

 private:
  std::unordered_map<std::string, Symbol> symbols_;
  std::vector<std::string> names_;
};

enum class ExprKind : uint8_t {
  constant,
  name,
  list,
  tuple,
  dict,
  unary,
  binary,
  concat,
  logical,
  compare,
  conditional,
  attribute,
  item,
  slice,
  call,
  filter,
  test,
  captured,  // the body of a filter block or block set
};

struct Expr {
  explicit Expr(ExprKind expr_kind, uint32_t expr_line) : kind(expr_kind), line(expr_line) {}
  Expr(const Expr&) = delete;
  Expr& operator=(const Expr&) = delete;
  virtual ~Expr() = default;

  ExprKind kind;
  uint32_t line;
  uint32_t height = 1;  // of the tree below: bounds every recursion over it
};
using ExprPtr = std::unique_ptr<Expr>;

template <ExprKind kKind>
struct ExprOf : Expr {
  explicit ExprOf(uint32_t expr_line) : Expr(kKind, expr_line) {}
};

struct ConstantExpr : ExprOf<ExprKind::constant> {
  using ExprOf::ExprOf;
  Value value;
};
struct NameExpr : ExprOf<ExprKind::name> {
  using ExprOf::ExprOf;
  Symbol symbol = 0;
};
struct ListExpr : ExprOf<ExprKind::list> {
  using ExprOf::ExprOf;
  std::vector<ExprPtr> items;
};
struct TupleExpr : ExprOf<ExprKind::tuple> {
  using ExprOf::ExprOf;
  std::vector<ExprPtr> items;
};
struct DictExpr : ExprOf<ExprKind::dict> {
  using ExprOf::ExprOf;
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};
enum class UnaryOperator : uint8_t { negate, plus, logical_not };
struct UnaryExpr : ExprOf<ExprKind::unary> {
  using ExprOf::ExprOf;
  UnaryOperator op = UnaryOperator::negate;
  ExprPtr operand;
};
enum class BinaryOperator : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power
};
struct BinaryExpr : ExprOf<ExprKind::binary> {
  using ExprOf::ExprOf;
  BinaryOperator op = BinaryOperator::add;
  // -3 ** n is -(3 ** n) in Python, yet (-3) ** n by Jinja's grammar. Jinja2 folds constants and
  // prints the rest as Python: it gives the former where the base alone is a constant.
  bool binds_sign_last = false;
  ExprPtr left;
  ExprPtr right;
};
struct ConcatExpr : ExprOf<ExprKind::concat> {
  using ExprOf::ExprOf;
  std::vector<ExprPtr> items;
};
struct LogicalExpr : ExprOf<ExprKind::logical> {
  using ExprOf::ExprOf;
  bool is_and = false;
  ExprPtr left;
  ExprPtr right;
};
enum class CompareOperator : uint8_t { eq, ne, lt, le, gt, ge, in, not_in };
struct CompareExpr : ExprOf<ExprKind::compare> {
  using ExprOf::ExprOf;
  ExprPtr first;
  std::vector<std::pair<CompareOperator, ExprPtr>> rest;
};
struct ConditionalExpr : ExprOf<ExprKind::conditional> {
  using ExprOf::ExprOf;
  ExprPtr condition;
  ExprPtr then;
  ExprPtr otherwise;  // null: undefined
};
struct AttributeExpr : ExprOf<ExprKind::attribute> {
  using ExprOf::ExprOf;
  ExprPtr object;
  std::string name;
};
struct ItemExpr : ExprOf<ExprKind::item> {
  using ExprOf::ExprOf;
  ExprPtr object;
  ExprPtr index;
};
struct SliceExpr : ExprOf<ExprKind::slice> {  // null where left out
  using ExprOf::ExprOf;
  ExprPtr object;
  ExprPtr start;
  ExprPtr stop;
  ExprPtr step;
};
struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;
  ExprPtr star_star;
};
struct CallExpr : ExprOf<ExprKind::call> {
  using ExprOf::ExprOf;
  ExprPtr callee;
  CallArguments arguments;
};
struct FilterExpr : ExprOf<ExprKind::filter> {
  using ExprOf::ExprOf;
  ExprPtr input;
  const Builtin* filter = nullptr;
  CallArguments arguments;
};
struct TestExpr : ExprOf<ExprKind::test> {
  using ExprOf::ExprOf;
  ExprPtr input;
  const Builtin* test = nullptr;
  CallArguments arguments;
};
struct CapturedExpr : ExprOf<ExprKind::captured> {
  using ExprOf::ExprOf;
};

enum class StmtKind : uint8_t {
  data,
  output,
  if_else,
  for_loop,
  set,
  set_block,
  macro,
  call_block,
  filter_block,
  with,
  scope,  // generation
  loop_break,
  loop_continue,
};

struct Stmt {
  explicit Stmt(StmtKind stmt_kind, uint32_t stmt_line) : kind(stmt_kind), line(stmt_line) {}
  Stmt(const Stmt&) = delete;
  Stmt& operator=(const Stmt&) = delete;
  virtual ~Stmt() = default;

  StmtKind kind;
  uint32_t line;
};
using StmtPtr = std::unique_ptr<Stmt>;
using Block = std::vector<StmtPtr>;

template <StmtKind kKind>
struct StmtOf : Stmt {
  explicit StmtOf(uint32_t stmt_line) : Stmt(kKind, stmt_line) {}
};

// What can be assigned to: a name, an attribute of a namespace, a tuple of targets.
struct Target {
  enum class Form : uint8_t { name, attribute, tuple };
  Form form = Form::name;
  Symbol symbol = 0;
  std::string attribute;
  std::vector<Target> items;
};

// A variable that a frame assigns, other than its parameters. At the frame's start it has the value
// of the outer variable of its name, or none.
struct Local {
  Symbol symbol = 0;
  bool is_from_outer = false;
};
using Locals = std::vector<Local>;

struct MacroDefinition {
  std::string name;
  struct Parameter {
    Symbol symbol = 0;
    std::string name;
    ExprPtr fallback;  // null: none
  };
  std::vector<Parameter> parameters;
  Block body;
  Locals locals;
  // Which of Jinja's special names the body uses.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct DataStmt : StmtOf<StmtKind::data> {
  using StmtOf::StmtOf;
  std::string text;
};
struct OutputStmt : StmtOf<StmtKind::output> {
  using StmtOf::StmtOf;
  ExprPtr value;
};
struct IfStmt : StmtOf<StmtKind::if_else> {
  using StmtOf::StmtOf;
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block otherwise;
};
struct ForStmt : StmtOf<StmtKind::for_loop> {
  using StmtOf::StmtOf;
  Target target;
  ExprPtr iterable;
  ExprPtr condition;  // null: none
  bool is_recursive = false;
  Block body;
  Locals locals;
  Block otherwise;
  Locals else_locals;
};
struct SetStmt : StmtOf<StmtKind::set> {
  using StmtOf::StmtOf;
  Target target;
  ExprPtr value;
};
struct SetBlockStmt : StmtOf<StmtKind::set_block> {
  using StmtOf::StmtOf;
  Target target;
  ExprPtr value;  // filters over `captured`
  Block body;
  Locals locals;
};
struct MacroStmt : StmtOf<StmtKind::macro> {
  using StmtOf::StmtOf;
  Symbol symbol = 0;
  MacroDefinition macro;
};
struct CallBlockStmt : StmtOf<StmtKind::call_block> {
  using StmtOf::StmtOf;
  MacroDefinition caller;
  std::unique_ptr<CallExpr> call;
};
struct FilterBlockStmt : StmtOf<StmtKind::filter_block> {
  using StmtOf::StmtOf;
  ExprPtr value;  // filters over `captured`
  Block body;
  Locals locals;
};
struct WithStmt : StmtOf<StmtKind::with> {
  using StmtOf::StmtOf;
  std::vector<std::pair<Target, ExprPtr>> values;
  Block body;
  Locals locals;
};
struct ScopeStmt : StmtOf<StmtKind::scope> {
  using StmtOf::StmtOf;
  Block body;
  Locals locals;
};
struct BreakStmt : StmtOf<StmtKind::loop_break> {
  using StmtOf::StmtOf;
};
struct ContinueStmt : StmtOf<StmtKind::loop_continue> {
  using StmtOf::StmtOf;
};

// The node as what its kind says it is.
template <typename T>
const T& as(const Expr& expr) {
  return static_cast<const T&>(expr);
}
template <typename T>
const T& as(const Stmt& stmt) {
  return static_cast<const T&>(stmt);
}
template <typename T>
T& as(Stmt& stmt) {
  return static_cast<T&>(stmt);
}

struct Tree {
  explicit Tree(size_t max_constant_bytes) : constants(max_constant_bytes) {}
  SymbolTable symbols;
  Heap constants;
  Block body;
  Locals locals;
};

}  // namespace nightsweep::jinja
