// The expressions of a template: a parser by binding power that the statement parser builds on.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/jinja_ast.h"
#include "engine/jinja_lexer.h"

namespace nightsweep::jinja {

class ExprParser {
 public:
  ExprParser(std::vector<Token> tokens, const TemplateLimits& limits, Tree& tree)
      : tree_(tree), tokens_(std::move(tokens)), limits_(limits) {}

 protected:
  // One level of brackets or blocks.
  class Nesting {
   public:
    explicit Nesting(ExprParser& parser) : parser_(parser) {
      if (++parser_.depth_ > parser_.limits_.max_depth) parser_.error("nested too deeply");
    }
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExprParser& parser_;
  };

  [[noreturn]] void error(const std::string& text) const;
  const Token& current() const { return tokens_[position_]; }
  const Token& take() { return tokens_[position_ + 1 < tokens_.size() ? position_++ : position_]; }
  std::string described() const;
  bool is_symbol(std::string_view symbol) const;
  bool is_name(std::string_view name) const;
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect_name(std::string_view name);
  void expect_kind(TokenKind kind, std::string_view text);
  std::string expect_any_name();
  static bool is_constant_name(std::string_view name);

  ExprPtr parse_expression();
  // One expression, or a tuple without brackets. The names of `ends` end it.
  ExprPtr parse_tuple(bool with_conditional, std::initializer_list<std::string_view> ends);
  // Filters that follow `input`, each behind its bar.
  ExprPtr parse_filters(ExprPtr input);
  // One filter, its bar already taken.
  ExprPtr parse_filter(ExprPtr input);

  Tree& tree_;
  std::vector<MacroDefinition*> macros_;  // those around the current token, outermost first

 private:
  ExprPtr parse_conditional();
  ExprPtr parse_operators(int min_power);
  ExprPtr parse_compare(ExprPtr first);
  ExprPtr parse_concat(ExprPtr first);
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  ExprPtr parse_test(ExprPtr input);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_primary();
  ExprPtr parse_bracketed();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_name();
  CallArguments parse_arguments(Expr& owner);
  ExprPtr constant(Value value, uint32_t line);
  // Takes a child in and keeps count of the tree's height.
  ExprPtr adopt(Expr& parent, ExprPtr child) const;

  std::vector<Token> tokens_;
  size_t position_ = 0;
  const TemplateLimits& limits_;
  uint32_t depth_ = 0;
};

}  // namespace nightsweep::jinja
