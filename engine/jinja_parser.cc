#include "engine/jinja_parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/format.h"
#include "engine/jinja_expr_parser.h"
#include "engine/jinja_scopes.h"

namespace nightsweep::jinja {
namespace {

class Parser : public ExprParser {
 public:
  using ExprParser::ExprParser;

  Block parse_template() {
    Block body = parse_block({});
    if (current().kind != TokenKind::end) error("unexpected end of the template's statements");
    return body;
  }

 private:
  // Up to a tag with one of the names, which stays the current token, or the end of the template
  // where `ends` is empty.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    Nesting nesting(*this);
    Block block;
    while (current().kind != TokenKind::end) {
      const Token& token = current();
      if (token.kind == TokenKind::data) {
        auto stmt = std::make_unique<DataStmt>(token.line);
        stmt->text = take().text;
        block.push_back(std::move(stmt));
      } else if (token.kind == TokenKind::variable_begin) {
        take();
        auto stmt = std::make_unique<OutputStmt>(token.line);
        stmt->value = parse_tuple(true, {});
        expect_kind(TokenKind::variable_end, "}}");
        block.push_back(std::move(stmt));
      } else {
        expect_kind(TokenKind::block_begin, "{%");
        if (current().kind == TokenKind::name &&
            std::find(ends.begin(), ends.end(), current().text) != ends.end()) {
          return block;
        }
        block.push_back(parse_statement(ends));
      }
    }
    if (ends.size() > 0) {
      error(format("the template ends where {{% {} %}} is expected", *(ends.end() - 1)));
    }
    return block;
  }

  void end_tag() { expect_kind(TokenKind::block_end, "%}"); }

  // The body of a statement, to the tag `end` and past it.
  Block parse_body(std::string_view end) {
    end_tag();
    Block body = parse_block({end});
    take();
    end_tag();
    return body;
  }

  StmtPtr parse_statement(std::initializer_list<std::string_view> ends) {
    Token tag = current();
    if (tag.kind != TokenKind::name) error(format("expected a statement, found {}", described()));
    take();
    if (tag.text == "if") return parse_if(tag.line);
    if (tag.text == "for") return parse_for(tag.line);
    if (tag.text == "set") return parse_set(tag.line);
    if (tag.text == "macro") return parse_macro(tag.line);
    if (tag.text == "call") return parse_call_block(tag.line);
    if (tag.text == "filter") return parse_filter_block(tag.line);
    if (tag.text == "with") return parse_with(tag.line);
    if (tag.text == "print") {
      auto stmt = std::make_unique<OutputStmt>(tag.line);
      stmt->value = parse_tuple(true, {});
      end_tag();
      return stmt;
    }
    if (tag.text == "generation") {
      auto stmt = std::make_unique<ScopeStmt>(tag.line);
      size_t outer_loops = std::exchange(n_loops_, 0);
      stmt->body = parse_body("endgeneration");
      n_loops_ = outer_loops;
      return stmt;
    }
    if (tag.text == "break" || tag.text == "continue") {
      if (n_loops_ == 0) error(format("'{}' outside of a loop", tag.text));
      end_tag();
      if (tag.text == "break") return std::make_unique<BreakStmt>(tag.line);
      return std::make_unique<ContinueStmt>(tag.line);
    }
    if (tag.text.starts_with("end") || tag.text == "else" || tag.text == "elif") {
      error(format(
          "unexpected tag '{}'{}", tag.text,
          ends.size() > 0 ? format(", expected '{}'", *(ends.end() - 1)) : std::string()));
    }
    error(format("the statement '{}' is not supported in chat templates", tag.text));
  }

  StmtPtr parse_if(uint32_t line) {
    auto stmt = std::make_unique<IfStmt>(line);
    while (true) {
      ExprPtr condition = parse_tuple(false, {});
      end_tag();
      Block body = parse_block({"elif", "else", "endif"});
      stmt->branches.emplace_back(std::move(condition), std::move(body));
      std::string tag = take().text;
      if (tag == "elif") continue;
      if (tag == "else") {
        stmt->otherwise = parse_body("endif");
      } else {
        end_tag();
      }
      return stmt;
    }
  }

  StmtPtr parse_for(uint32_t line) {
    auto stmt = std::make_unique<ForStmt>(line);
    stmt->target = parse_target(false, "in");
    expect_name("in");
    stmt->iterable = parse_tuple(false, {"recursive"});
    if (skip_name("if")) stmt->condition = parse_expression();
    stmt->is_recursive = skip_name("recursive");
    end_tag();
    ++n_loops_;
    stmt->body = parse_block({"else", "endfor"});
    --n_loops_;
    if (take().text == "else") {
      stmt->otherwise = parse_body("endfor");
    } else {
      end_tag();
    }
    return stmt;
  }

  StmtPtr parse_set(uint32_t line) {
    Target target = parse_target(true, {});
    if (skip_symbol("=")) {
      auto stmt = std::make_unique<SetStmt>(line);
      stmt->target = std::move(target);
      stmt->value = parse_tuple(true, {});
      end_tag();
      return stmt;
    }
    auto stmt = std::make_unique<SetBlockStmt>(line);
    stmt->target = std::move(target);
    stmt->value = parse_filters(std::make_unique<CapturedExpr>(line));
    stmt->body = parse_body("endset");
    return stmt;
  }

  // parameter, parameter = default, ...: up to and past the closing bracket.
  void parse_signature(MacroDefinition& macro) {
    expect_symbol("(");
    while (!is_symbol(")")) {
      if (!macro.parameters.empty()) {
        expect_symbol(",");
        if (is_symbol(")")) break;
      }
      MacroDefinition::Parameter& parameter = macro.parameters.emplace_back();
      parameter.name = expect_any_name();
      parameter.symbol = tree_.symbols.intern(parameter.name);
      if (skip_symbol("=")) {
        parameter.fallback = parse_expression();
      } else if (
          macro.parameters.size() > 1 && macro.parameters[macro.parameters.size() - 2].fallback) {
        error(format("the parameter '{}' needs a default as the one before has", parameter.name));
      }
    }
    expect_symbol(")");
  }

  void parse_macro_body(MacroDefinition& macro, std::string_view end) {
    macros_.push_back(&macro);
    size_t outer_loops = std::exchange(n_loops_, 0);
    macro.body = parse_body(end);
    n_loops_ = outer_loops;
    macros_.pop_back();
  }

  StmtPtr parse_macro(uint32_t line) {
    auto stmt = std::make_unique<MacroStmt>(line);
    stmt->macro.name = expect_any_name();
    stmt->symbol = tree_.symbols.intern(stmt->macro.name);
    parse_signature(stmt->macro);
    parse_macro_body(stmt->macro, "endmacro");
    return stmt;
  }

  StmtPtr parse_call_block(uint32_t line) {
    auto stmt = std::make_unique<CallBlockStmt>(line);
    stmt->caller.name = "caller";
    if (is_symbol("(")) parse_signature(stmt->caller);
    ExprPtr call = parse_expression();
    if (call->kind != ExprKind::call) error("a call block needs a call, as in {% call name() %}");
    stmt->call.reset(static_cast<CallExpr*>(call.release()));
    parse_macro_body(stmt->caller, "endcall");
    return stmt;
  }

  StmtPtr parse_filter_block(uint32_t line) {
    auto stmt = std::make_unique<FilterBlockStmt>(line);
    stmt->value = parse_filters(parse_filter(std::make_unique<CapturedExpr>(line)));
    stmt->body = parse_body("endfilter");
    return stmt;
  }

  StmtPtr parse_with(uint32_t line) {
    auto stmt = std::make_unique<WithStmt>(line);
    while (current().kind != TokenKind::block_end) {
      if (!stmt->values.empty()) expect_symbol(",");
      Target target = parse_target(false, {});
      expect_symbol("=");
      ExprPtr value = parse_expression();
      stmt->values.emplace_back(std::move(target), std::move(value));
    }
    stmt->body = parse_body("endwith");
    return stmt;
  }

  Target parse_one_target(bool may_be_attribute) {
    Target target;
    if (skip_symbol("(")) {
      target = parse_target(may_be_attribute, {});
      expect_symbol(")");
      return target;
    }
    std::string name = expect_any_name();
    if (is_constant_name(name)) error(format("'{}' cannot be assigned to", name));
    target.symbol = tree_.symbols.intern(name);
    if (may_be_attribute && skip_symbol(".")) {
      target.form = Target::Form::attribute;
      target.attribute = expect_any_name();
    }
    return target;
  }

  Target parse_target(bool may_be_attribute, std::string_view end_name) {
    Nesting nesting(*this);
    Target first = parse_one_target(may_be_attribute);
    if (!is_symbol(",")) return first;
    Target tuple;
    tuple.form = Target::Form::tuple;
    tuple.items.push_back(std::move(first));
    while (skip_symbol(",")) {
      bool is_done = current().kind != TokenKind::name && !is_symbol("(");
      if (is_done || (!end_name.empty() && is_name(end_name))) break;
      tuple.items.push_back(parse_one_target(may_be_attribute));
    }
    return tuple;
  }

  size_t n_loops_ = 0;
};

}  // namespace

std::unique_ptr<Tree>
parse(std::string_view source, const TemplateOptions& options, const TemplateLimits& limits) {
  auto tree = std::make_unique<Tree>(limits.max_memory_bytes);
  tree->body = Parser(tokenize(source, options), limits, *tree).parse_template();
  resolve_scopes(*tree);
  return tree;
}

}  // namespace nightsweep::jinja
