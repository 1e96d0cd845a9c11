#include "engine/jinja_scopes.h"

#include <algorithm>
#include <unordered_map>

#include "base/format.h"

namespace nightsweep::jinja {
namespace {

void for_each_argument(const CallArguments& arguments, const auto& visit) {
  for (const ExprPtr& value : arguments.positional)
    visit(*value);
  for (const auto& named : arguments.named)
    visit(*named.second);
  if (arguments.star != nullptr) visit(*arguments.star);
  if (arguments.star_star != nullptr) visit(*arguments.star_star);
}

void for_each_child(const Expr& expr, const auto& visit) {
  auto visit_all = [&](const std::vector<ExprPtr>& items) {
    for (const ExprPtr& item : items)
      visit(*item);
  };
  auto visit_optional = [&](const ExprPtr& child) {
    if (child != nullptr) visit(*child);
  };
  switch (expr.kind) {
    case ExprKind::constant:
    case ExprKind::name:
    case ExprKind::captured:
      return;
    case ExprKind::list:
      return visit_all(as<ListExpr>(expr).items);
    case ExprKind::tuple:
      return visit_all(as<TupleExpr>(expr).items);
    case ExprKind::concat:
      return visit_all(as<ConcatExpr>(expr).items);
    case ExprKind::dict:
      for (const auto& [key, value] : as<DictExpr>(expr).items) {
        visit(*key);
        visit(*value);
      }
      return;
    case ExprKind::unary:
      return visit(*as<UnaryExpr>(expr).operand);
    case ExprKind::binary:
      visit(*as<BinaryExpr>(expr).left);
      return visit(*as<BinaryExpr>(expr).right);
    case ExprKind::logical:
      visit(*as<LogicalExpr>(expr).left);
      return visit(*as<LogicalExpr>(expr).right);
    case ExprKind::compare:
      visit(*as<CompareExpr>(expr).first);
      for (const auto& operand : as<CompareExpr>(expr).rest)
        visit(*operand.second);
      return;
    case ExprKind::conditional:
      visit(*as<ConditionalExpr>(expr).condition);
      visit(*as<ConditionalExpr>(expr).then);
      return visit_optional(as<ConditionalExpr>(expr).otherwise);
    case ExprKind::attribute:
      return visit(*as<AttributeExpr>(expr).object);
    case ExprKind::item:
      visit(*as<ItemExpr>(expr).object);
      return visit(*as<ItemExpr>(expr).index);
    case ExprKind::slice:
      visit(*as<SliceExpr>(expr).object);
      visit_optional(as<SliceExpr>(expr).start);
      visit_optional(as<SliceExpr>(expr).stop);
      return visit_optional(as<SliceExpr>(expr).step);
    case ExprKind::call:
      visit(*as<CallExpr>(expr).callee);
      return for_each_argument(as<CallExpr>(expr).arguments, visit);
    case ExprKind::filter:
      visit(*as<FilterExpr>(expr).input);
      return for_each_argument(as<FilterExpr>(expr).arguments, visit);
    case ExprKind::test:
      visit(*as<TestExpr>(expr).input);
      return for_each_argument(as<TestExpr>(expr).arguments, visit);
  }
}

class Resolver {
 public:
  explicit Resolver(Tree& tree) : tree_(tree), n_outer_(tree.symbols.size()) {}

  void run() {
    resolve_frame(tree_.body, tree_.locals, [](Frame&) {});
  }

 private:
  enum class Start : uint8_t { parameter, outer, undefined };
  struct Reference {
    Start start = Start::outer;
    bool is_stored = false;
  };
  struct Frame {
    std::unordered_map<Symbol, Reference> references;
    // Whether a statement of the frame stands in a branch of an `if`: it may not run.
    uint32_t n_branches = 0;
  };

  // One frame: what it names itself, then the frames within it, which see its names as outer ones.
  // `declare`: its parameters and what it reads besides its body.
  void resolve_frame(Block& body, Locals& locals, const auto& declare) {
    Frame frame;
    declare(frame);
    name_all(body, frame);
    for (const auto& [symbol, reference] : frame.references) {
      ++n_outer_[symbol];
      if (reference.is_stored && reference.start != Start::parameter) {
        locals.push_back({symbol, reference.start == Start::outer});
      }
    }
    std::sort(locals.begin(), locals.end(), [](const Local& a, const Local& b) {
      return a.symbol < b.symbol;
    });
    resolve_inner(body);
    for (const auto& entry : frame.references)
      --n_outer_[entry.first];
  }

  void load(Symbol symbol, Frame& frame) {
    if (n_outer_[symbol] == 0) frame.references.try_emplace(symbol);
  }

  void load_all(const Expr& expr, Frame& frame) {
    if (expr.kind == ExprKind::name) load(as<NameExpr>(expr).symbol, frame);
    for_each_child(expr, [&](const Expr& child) { load_all(child, frame); });
  }

  void store(Symbol symbol, Frame& frame) {
    bool has_value_before = frame.n_branches > 0 || n_outer_[symbol] > 0;
    auto [it, is_new] = frame.references.try_emplace(symbol);
    if (is_new) it->second.start = has_value_before ? Start::outer : Start::undefined;
    it->second.is_stored = true;
  }

  static void declare_parameter(Symbol symbol, Frame& frame) {
    frame.references[symbol] = {Start::parameter, true};
  }

  void store_target(const Target& target, uint32_t line, Frame& frame) {
    switch (target.form) {
      case Target::Form::name:
        if (n_loops_ > 0) refuse_loop(target.symbol, line);
        return store(target.symbol, frame);
      case Target::Form::attribute:
        return load(target.symbol, frame);
      case Target::Form::tuple:
        for (const Target& item : target.items)
          store_target(item, line, frame);
        return;
    }
  }

  void declare_target(const Target& target, Frame& frame) const {
    if (target.form == Target::Form::name) declare_parameter(target.symbol, frame);
    for (const Target& item : target.items)
      declare_target(item, frame);
  }

  void refuse_loop_in(const Target& target, uint32_t line) const {
    if (target.form == Target::Form::name) refuse_loop(target.symbol, line);
    for (const Target& item : target.items)
      refuse_loop_in(item, line);
  }

  void refuse_loop(Symbol symbol, uint32_t line) const {
    if (tree_.symbols.name(symbol) != "loop") return;
    throw TemplateError(format("line {}: 'loop' cannot be assigned to in a loop", line));
  }

  void name_all(Block& block, Frame& frame) {
    for (StmtPtr& stmt : block)
      name_in(*stmt, frame);
  }

  // The names of one statement that belong to the frame it stands in.
  void name_in(Stmt& stmt, Frame& frame) {
    switch (stmt.kind) {
      case StmtKind::data:
      case StmtKind::scope:
      case StmtKind::loop_break:
      case StmtKind::loop_continue:
        return;
      case StmtKind::output:
        return load_all(*as<OutputStmt>(stmt).value, frame);
      case StmtKind::if_else:
        return name_in_branches(as<IfStmt>(stmt), frame);
      case StmtKind::for_loop:
        return load_all(*as<ForStmt>(stmt).iterable, frame);
      case StmtKind::set:
        load_all(*as<SetStmt>(stmt).value, frame);
        return store_target(as<SetStmt>(stmt).target, stmt.line, frame);
      case StmtKind::set_block:
        return store_target(as<SetBlockStmt>(stmt).target, stmt.line, frame);
      case StmtKind::macro:
        return store(as<MacroStmt>(stmt).symbol, frame);
      case StmtKind::call_block:
        return load_all(*as<CallBlockStmt>(stmt).call, frame);
      case StmtKind::filter_block:
        return load_all(*as<FilterBlockStmt>(stmt).value, frame);
      case StmtKind::with:
        for (const auto& entry : as<WithStmt>(stmt).values)
          load_all(*entry.second, frame);
        return;
    }
  }

  void name_in_branches(IfStmt& stmt, Frame& frame) {
    bool is_first = true;
    for (auto& [condition, body] : stmt.branches) {
      load_all(*condition, frame);
      if (is_first) ++frame.n_branches;
      is_first = false;
      name_all(body, frame);
    }
    name_all(stmt.otherwise, frame);
    --frame.n_branches;
  }

  void resolve_inner(Block& block) {
    for (StmtPtr& stmt : block)
      resolve_frames_of(*stmt);
  }

  void resolve_frames_of(Stmt& stmt) {
    auto nothing = [](Frame&) {};
    switch (stmt.kind) {
      case StmtKind::if_else: {
        auto& branches = as<IfStmt>(stmt);
        for (auto& branch : branches.branches)
          resolve_inner(branch.second);
        return resolve_inner(branches.otherwise);
      }
      case StmtKind::for_loop:
        return resolve_loop(as<ForStmt>(stmt));
      case StmtKind::set_block: {
        auto& set = as<SetBlockStmt>(stmt);
        return resolve_frame(set.body, set.locals, nothing);
      }
      case StmtKind::macro:
        return resolve_macro(as<MacroStmt>(stmt).macro);
      case StmtKind::call_block:
        return resolve_macro(as<CallBlockStmt>(stmt).caller);
      case StmtKind::filter_block: {
        auto& filter = as<FilterBlockStmt>(stmt);
        return resolve_frame(
            filter.body, filter.locals, [&](Frame& frame) { load_all(*filter.value, frame); });
      }
      case StmtKind::with: {
        auto& with = as<WithStmt>(stmt);
        return resolve_frame(with.body, with.locals, [&](Frame& frame) {
          for (const auto& entry : with.values)
            declare_target(entry.first, frame);
        });
      }
      case StmtKind::scope: {
        auto& scope = as<ScopeStmt>(stmt);
        return resolve_frame(scope.body, scope.locals, nothing);
      }
      default:
        return;
    }
  }

  void resolve_loop(ForStmt& loop) {
    ++n_loops_;
    refuse_loop_in(loop.target, loop.line);
    resolve_frame(loop.body, loop.locals, [&](Frame& frame) {
      if (auto* symbol = tree_.symbols.find("loop")) declare_parameter(*symbol, frame);
      declare_target(loop.target, frame);
    });
    resolve_frame(loop.otherwise, loop.else_locals, [](Frame&) {});
    --n_loops_;
  }

  void resolve_macro(MacroDefinition& macro) {
    resolve_frame(macro.body, macro.locals, [&](Frame& frame) {
      for (const auto& parameter : macro.parameters) {
        declare_parameter(parameter.symbol, frame);
      }
      for (const auto& parameter : macro.parameters) {
        if (parameter.fallback != nullptr) load_all(*parameter.fallback, frame);
      }
    });
  }

  Tree& tree_;
  std::vector<uint32_t> n_outer_;  // by symbol: frames around the current one that name it
  uint32_t n_loops_ = 0;           // around the current statement
};

}  // namespace

void resolve_scopes(Tree& tree) {
  Resolver(tree).run();
}

}  // namespace nightsweep::jinja
