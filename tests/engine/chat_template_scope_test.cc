// Where variables live and how loops go on: the corners in which Jinja2 shows that it compiles to
// Python. All expected texts are those of Jinja2 3.1.
#include <gtest/gtest.h>

#include <string>

#include "engine/chat_template.h"

namespace nightsweep {
namespace {

// t is 'T', n is 2, m is -3, l is [1, 2, 3].
std::string render_small(std::string_view source) {
  static const Json variables = Json::parse(R"({"t":"T","n":2,"m":-3,"l":[1,2,3]})");
  try {
    return joined(ChatTemplate::compile(source).render(variables, 0));
  } catch (const TemplateError& error) {
    return "error: " + std::string(error.what());
  }
}

TEST(ChatTemplate, a_frame_owns_the_names_that_it_assigns_from_its_start) {
  EXPECT_EQ(render_small("{% for x in [1] %}[{{ t }}]{% endfor %}{% set t = 1 %}"), "[]");
  EXPECT_EQ(render_small("{% filter upper %}[{{ t }}]{% endfilter %}{% set t = 1 %}"), "[]");
  EXPECT_EQ(
      render_small("{% macro f() %}[{{ t }}]{% endmacro %}{{ f() }}{% set t = 1 %}{{ f() }}"),
      "[][1]");
  EXPECT_EQ(render_small("[{{ t }}]{% set t = 1 %}[{{ t }}]"), "[T][1]");
}

TEST(ChatTemplate, a_name_assigned_in_a_branch_keeps_its_outer_value_until_then) {
  EXPECT_EQ(
      render_small(
          "{% if n > 5 %}{% set t = 1 %}{% endif %}{% for x in [1] %}[{{ t }}]{% endfor %}"),
      "[T]");
  EXPECT_EQ(
      render_small(
          "{% if 1 %}{% for x in [1] %}[{{ t }}]{% endfor %}{% else %}{% set t = 5 %}{% endif %}"),
      "[T]");
}

TEST(ChatTemplate, every_turn_of_a_loop_starts_with_the_outer_value) {
  EXPECT_EQ(
      render_small("{{ t }}{% for x in l %}{{ t }}{% set t = x %}{{ t }};{% endfor %}{{ t }}"),
      "TT1;T2;T3;T");
  EXPECT_EQ(render_small("{% for x in l %}{{ z }}{% set z = x %}{{ z }};{% endfor %}"), "1;2;3;");
  EXPECT_EQ(
      render_small("{{ t }}{% for x in [1] %}{% for y in [1] %}[{{ t }}]{% endfor %}{% set t = 5 %}"
                   "{% endfor %}"),
      "T[T]");
}

TEST(ChatTemplate, with_and_macros_evaluate_where_jinja2_does) {
  EXPECT_EQ(render_small("{% with n = 5, t = n %}{{ n }}{{ t }}{% endwith %}{{ n }}"), "522");
  EXPECT_EQ(
      render_small(
          "{% macro f(a=b, b=2) %}{{ a }},{{ b }}{% endmacro %}{{ f() }};{{ f(b=7) }};{{ f(1) }}"),
      ",2;7,7;1,2");
  EXPECT_EQ(
      render_small("{% set v | replace('x', t) %}{% set t = 'y' %}axb{% endset %}{{ v }}{{ t }}"),
      "aybT");
  EXPECT_EQ(
      render_small("{% filter replace('x', t) %}{% set t = 'y' %}axb{% endfilter %}{{ t }}"),
      "aybT");
}

TEST(ChatTemplate, looking_for_one_of_many_variables_is_counted) {
  std::string source = "{% for x in range(300) %}";
  for (int i = 0; i < 5000; ++i)
    source += "{% set v" + std::to_string(i) + " = 1 %}";
  EXPECT_EQ(
      render_small(source + "{% endfor %}"), "error: line 1: the template takes too many steps");
}

TEST(ChatTemplate, the_loop_variable_is_no_target) {
  EXPECT_EQ(
      render_small("\n{% for loop in l %}{% endfor %}"),
      "error: line 2: 'loop' cannot be assigned to in a loop");
  EXPECT_EQ(
      render_small("{% for x in l %}{% if x %}{% set loop = 1 %}{% endif %}{% endfor %}"),
      "error: line 1: 'loop' cannot be assigned to in a loop");
  EXPECT_EQ(render_small("{% set loop = 4 %}{{ loop }}"), "4");
}

TEST(ChatTemplate, a_loop_takes_its_items_one_by_one) {
  EXPECT_EQ(
      render_small(
          "{% for x in l %}{{ x }}{% if x == 1 %}{{ l.append(9) }}{% endif %}{% endfor %}"),
      "1None239");
  EXPECT_EQ(
      render_small("{% for x in l %}{{ x }}{{ loop.last }}{{ loop.length }}"
                   "{% if loop.first %}{{ l.pop() }}{% endif %};{% endfor %}"),
      "1False33;2True3;");
  EXPECT_EQ(
      render_small("{% for x in l if x != n %}{{ loop.length }}{{ loop.previtem }}{{ x }}"
                   "{{ loop.nextitem }}{{ loop.revindex }}{{ loop.last }};{% endfor %}"),
      "2132False;2131True;");
  EXPECT_EQ(
      render_small("{% set d = {'a': 1} %}{% for k in d %}{{ d.pop(k) }}{% endfor %}"),
      "error: line 1: the dictionary changed its size in a loop over it");
}

TEST(ChatTemplate, the_else_of_a_loop_runs_when_no_turn_came_to_its_end) {
  EXPECT_EQ(render_small("{% for x in l %}{% break %}{% else %}E{% endfor %}"), "E");
  EXPECT_EQ(
      render_small(
          "{% for x in l %}{% if x > 1 %}{% continue %}{% endif %}{% else %}E{% endfor %}"),
      "");
  EXPECT_EQ(render_small("{% for x in l if x > 5 %}{{ x }}{% else %}E{% endfor %}"), "E");
}

TEST(ChatTemplate, a_power_of_a_negative_constant_binds_as_in_the_code_that_jinja2_makes) {
  EXPECT_EQ(
      render_small("{{ -3 ** n }} {{ -3 ** 2 }} {{ m ** n }} {{ (1 - 4) ** n }} {{ -n ** 2 }} "
                   "{{ -2 ** n ** 2 }} {{ -0.5 ** n }}"),
      "-9 9 9 -9 4 16 -0.25");
}

TEST(ChatTemplate, the_filter_title_makes_first_letters_upper_case) {
  EXPECT_EQ(render_small("{{ 'ßA-(bC ΑΣ' | title }}|{{ 'ßA' .title() }}"), "SSa-(Bc Ασ|Ssa");
}

TEST(ChatTemplate, filters_refuse_what_python_has_no_length_for) {
  EXPECT_EQ(
      render_small("{{ none | truncate(3) }}"),
      "error: line 1: object of type 'NoneType' has no len()");
  EXPECT_EQ(render_small("{{ l | truncate(3) }}"), "[1, 2, 3]");
  EXPECT_EQ(
      render_small("{{ none | indent }}"),
      "error: line 1: indent: expected a string, found NoneType");
}

}  // namespace
}  // namespace nightsweep
