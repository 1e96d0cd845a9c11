#include "engine/jinja_eval.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "engine/jinja_loop.h"

namespace nightsweep::jinja {
const Value* Scope::find(Symbol symbol) const {
  auto found = std::find_if(variables.begin(), variables.end(), [&](const auto& variable) {
    return variable.first == symbol;
  });
  return found == variables.end() ? nullptr : &found->second;
}

void Scope::set(Symbol symbol, Value value) {
  auto found = std::find_if(variables.begin(), variables.end(), [&](const auto& variable) {
    return variable.first == symbol;
  });
  if (found == variables.end()) {
    variables.emplace_back(symbol, value);
  } else {
    found->second = value;
  }
}

Evaluator::Frame::Frame(Evaluator& evaluator, const Locals& locals, Scope* parent)
    : evaluator_(evaluator) {
  if (evaluator_.free_scopes_.empty()) {
    evaluator_.runtime_.heap().charge(sizeof(Scope));
    scope_ = &evaluator_.scopes_.emplace_back();
  } else {
    scope_ = evaluator_.free_scopes_.back();
    evaluator_.free_scopes_.pop_back();
    scope_->variables.clear();
  }
  scope_->parent = parent;
  evaluator_.runtime_.step(locals.size());
  for (const Local& local : locals) {
    Value value = local.is_from_outer ? evaluator_.lookup(local.symbol, parent)
                                      : evaluator_.missing(local.symbol);
    scope_->variables.emplace_back(local.symbol, value);
  }
}

MarkedString Evaluator::run() {
  for (const Local& local : tree_.locals) {
    if (!local.is_from_outer) root_[local.symbol] = missing(local.symbol);
  }
  MarkedString out;
  run_block(tree_.body, nullptr, out);
  return out;
}

Evaluator::Flow Evaluator::run_block(const Block& block, Scope* scope, MarkedString& out) {
  for (const StmtPtr& stmt : block) {
    Flow flow = run_statement(*stmt, scope, out);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow
Evaluator::run_inner(const Block& block, const Locals& locals, Scope* scope, MarkedString& out) {
  Frame frame(*this, locals, scope);
  return run_block(block, frame.scope(), out);
}

Evaluator::Flow Evaluator::run_statement(const Stmt& stmt, Scope* scope, MarkedString& out) {
  Runtime::Nesting nesting(runtime_);
  runtime_.set_line(stmt.line);
  runtime_.step();
  switch (stmt.kind) {
    case StmtKind::data:
      out.append(as<DataStmt>(stmt).text, false);
      check_output(out);
      return Flow::normal;
    case StmtKind::output:
      write(eval(*as<OutputStmt>(stmt).value, scope), out);
      return Flow::normal;
    case StmtKind::if_else:
      return run_if(as<IfStmt>(stmt), scope, out);
    case StmtKind::for_loop: {
      const auto& loop = as<ForStmt>(stmt);
      return run_for(loop, scope, eval(*loop.iterable, scope), 0, out);
    }
    case StmtKind::set: {
      const auto& set = as<SetStmt>(stmt);
      assign(set.target, eval(*set.value, scope), scope);
      return Flow::normal;
    }
    case StmtKind::set_block:
      run_set_block(as<SetBlockStmt>(stmt), scope);
      return Flow::normal;
    case StmtKind::macro: {
      const auto& macro = as<MacroStmt>(stmt);
      Target target;
      target.symbol = macro.symbol;
      assign(target, new_macro(macro.macro, scope), scope);
      return Flow::normal;
    }
    case StmtKind::call_block:
      run_call_block(as<CallBlockStmt>(stmt), scope, out);
      return Flow::normal;
    case StmtKind::filter_block: {
      const auto& block = as<FilterBlockStmt>(stmt);
      write(capture(block.body, block.locals, scope, *block.value), out);
      return Flow::normal;
    }
    case StmtKind::with:
      run_with(as<WithStmt>(stmt), scope, out);
      return Flow::normal;
    case StmtKind::scope: {
      const auto& inner = as<ScopeStmt>(stmt);
      return run_inner(inner.body, inner.locals, scope, out);
    }
    case StmtKind::loop_break:
      return Flow::loop_break;
    case StmtKind::loop_continue:
      return Flow::loop_continue;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_if(const IfStmt& stmt, Scope* scope, MarkedString& out) {
  for (const auto& [condition, body] : stmt.branches) {
    if (runtime_.truthy(eval(*condition, scope))) return run_block(body, scope, out);
  }
  return run_block(stmt.otherwise, scope, out);
}

bool Evaluator::admits(const ForStmt& stmt, Value item, Scope* scope) {
  if (stmt.condition == nullptr) return true;
  runtime_.set_line(stmt.line);
  Frame frame(*this, {}, scope);
  assign(stmt.target, item, frame.scope());
  return runtime_.truthy(eval(*stmt.condition, frame.scope()));
}

Evaluator::Flow Evaluator::run_for(
    const ForStmt& stmt,
    Scope* scope,
    Value iterable,
    size_t depth,
    MarkedString& out) {
  static constexpr std::string_view kLoopName = "loop";
  auto* loop = runtime_.heap().make<LoopObject>(*this, stmt, scope, depth);
  loop->start(runtime_, iterable);
  const Symbol* loop_symbol = tree_.symbols.find(std::string(kLoopName));
  bool has_completed = false;
  while (loop->advance(runtime_)) {
    Frame frame(*this, stmt.locals, scope);
    if (loop_symbol != nullptr) {
      set_variable(frame.scope(), *loop_symbol, Value::object(Kind::host, loop));
    }
    assign(stmt.target, loop->current, frame.scope());
    Flow flow = run_block(stmt.body, frame.scope(), out);
    if (flow == Flow::loop_break) break;
    has_completed |= flow == Flow::normal;
  }
  // As in Jinja2, a loop whose every turn ended in break or continue has not run.
  return has_completed ? Flow::normal : run_inner(stmt.otherwise, stmt.else_locals, scope, out);
}

Value Evaluator::call_loop(const ForStmt& loop, Scope* scope, Value iterable, size_t depth) {
  if (depth > runtime_.limits().max_depth) runtime_.error("a loop calls itself too deeply");
  uint32_t line = runtime_.line();
  MarkedString out;
  run_for(loop, scope, iterable, depth, out);
  runtime_.set_line(line);
  return runtime_.heap().text(std::move(out));
}

Value Evaluator::capture(
    const Block& block,
    const Locals& locals,
    Scope* scope,
    const Expr& filters) {
  Frame frame(*this, locals, scope);
  MarkedString out;
  run_block(block, frame.scope(), out);
  captured_ = runtime_.heap().text(std::move(out));
  return eval(filters, frame.scope());
}

void Evaluator::run_set_block(const SetBlockStmt& stmt, Scope* scope) {
  assign(stmt.target, capture(stmt.body, stmt.locals, scope, *stmt.value), scope);
}

void Evaluator::run_with(const WithStmt& stmt, Scope* scope, MarkedString& out) {
  Frame frame(*this, stmt.locals, scope);
  for (const auto& [target, value] : stmt.values) {
    assign(target, eval(*value, scope), frame.scope());
  }
  run_block(stmt.body, frame.scope(), out);
}

void Evaluator::check_output(const MarkedString& out) const {
  if (out.size() > runtime_.limits().max_output_bytes) {
    runtime_.error(
        format("the template writes more than {} bytes", runtime_.limits().max_output_bytes));
  }
}

void Evaluator::write(Value value, MarkedString& out) {
  if (value.is_text()) {
    out.append(value.text().marked);
  } else {
    out.append(runtime_.str(value));
  }
  check_output(out);
}

void Evaluator::assign(const Target& target, Value value, Scope* scope) {
  switch (target.form) {
    case Target::Form::name:
      if (scope == nullptr) {
        root_[target.symbol] = value;
      } else {
        set_variable(scope, target.symbol, value);
      }
      return;
    case Target::Form::attribute: {
      Value object = lookup(target.symbol, scope);
      if (!object.is(Kind::name_space)) {
        runtime_.error(format(
            "cannot assign the attribute '{}' of '{}': it is no namespace", target.attribute,
            tree_.symbols.name(target.symbol)));
      }
      runtime_.heap().charge(sizeof(Dict::Entry));
      object.dict().set(runtime_.heap().text(target.attribute), value);
      return;
    }
    case Target::Form::tuple: {
      std::vector<Value> items = runtime_.items_of(value);
      if (items.size() != target.items.size()) {
        runtime_.error(
            format("{} values to unpack into {} names", items.size(), target.items.size()));
      }
      for (size_t i = 0; i < items.size(); ++i)
        assign(target.items[i], items[i], scope);
      return;
    }
  }
}

}  // namespace nightsweep::jinja
