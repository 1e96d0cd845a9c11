// Chat templates against exact text: shared cases, and small ones made here.
#include "engine/chat_template.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "support/cases.h"
#include "support/text.h"

namespace nightsweep {
namespace {

constexpr int64_t kNoon20260115 = 1768478400;
constexpr int64_t kNoon20250710 = 1752148800;
constexpr TemplateOptions kPlain{.trim_blocks = false, .lstrip_blocks = false};

Json variables(std::string_view json) {
  return Json::parse(json);
}

std::string
render(std::string_view source, std::string_view json = "{}", const TemplateOptions& options = {}) {
  return joined(ChatTemplate::compile(source, {}, options).render(variables(json), kNoon20260115));
}

std::string
fault_of(std::string_view source, std::string_view json = "{}", const TemplateLimits& limits = {}) {
  try {
    ChatTemplate::compile(source, limits).render(variables(json), kNoon20260115);
  } catch (const TemplateError& error) {
    return error.what();
  }
  return "no error";
}

std::string read(const std::string& path) {
  return read_whole_file(path, ErrorKind::input);
}

TEST(ChatTemplate, renders_all_golden_conversations) {
  NEEDS_CASES("chat");
  std::string folder = cases_folder() + "/chat/";
  std::istringstream lines(read(folder + "goldens-python-jinja2.jsonl"));
  std::string line;
  int n = 0;
  while (std::getline(lines, line)) {
    Json golden = Json::parse(line);
    const std::string& name = golden.find("template")->as_string();
    SCOPED_TRACE(name + " " + golden.find("case")->as_string());
    ++n;
    auto source = read(folder + "templates/" + name + ".jinja");
    ChatTemplate compiled = ChatTemplate::compile(source);
    if (const Json* expected = golden.find("expected")) {
      EXPECT_EQ(
          joined(compiled.render(*golden.find("context"), kNoon20260115)), expected->as_string());
    } else {
      EXPECT_THROW(compiled.render(*golden.find("context"), kNoon20260115), TemplateError);
    }
  }
  EXPECT_EQ(n, 98);
}

TEST(ChatTemplate, renders_hugging_face_conversations) {
  NEEDS_CASES("chat");
  Json cases = Json::parse(read(cases_folder() + "/chat/hf-jinja-e2e.json"));
  EXPECT_EQ(cases.as_array().size(), 18U);
  for (const Json& test : cases.as_array()) {
    SCOPED_TRACE(test.find("name")->as_string());
    ChatTemplate compiled = ChatTemplate::compile(test.find("chat_template")->as_string());
    EXPECT_EQ(
        joined(compiled.render(*test.find("data"), kNoon20250710)),
        test.find("target")->as_string());
  }
}

TEST(ChatTemplate, renders_micro_cases) {
  NEEDS_CASES("chat");
  Json cases = Json::parse(read(cases_folder() + "/chat/jinja-micro.json"));
  EXPECT_EQ(cases.as_array().size(), 73U);
  for (const Json& test : cases.as_array()) {
    SCOPED_TRACE(test.find("name")->as_string());
    try {
      ChatTemplate compiled = ChatTemplate::compile(test.find("template")->as_string(), {}, kPlain);
      EXPECT_EQ(
          joined(compiled.render(*test.find("context"), kNoon20260115)),
          test.find("expected")->as_string());
    } catch (const TemplateError& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(ChatTemplate, prints_values_as_python_does) {
  EXPECT_EQ(
      render("{{ true }} {{ none }} {{ 1.0 }} {{ 1e16 }} {{ 0.00001 }} {{ undefined_name }}"),
      "True None 1.0 1e+16 1e-05 ");
  EXPECT_EQ(render("{{ ['a', 1, none, (2,), {'k': 0.5}] }}"), "['a', 1, None, (2,), {'k': 0.5}]");
  EXPECT_EQ(
      render(R"({{ ["it's", 'a"b\'c', "\n\x01é\u200b"] }})"),
      R"(["it's", 'a"b\'c', '\n\x01é\u200b'])");
}

TEST(ChatTemplate, keeps_pythons_precedence) {
  EXPECT_EQ(
      render("{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 1 / 2 }}"),
      "4 64 -4 2 0.5");
  EXPECT_EQ(
      render("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ not 1 == 2 }} {{ 1 ~ 2 * 3 }}"),
      "True False True 16");
  EXPECT_EQ(
      render("{{ 'a' if 0 }}|{{ 'a' if 1 else 'b' }}|{{ 2 in [1, 2] and 3 not in [1] }}"),
      "|a|True");
}

TEST(ChatTemplate, controls_white_space) {
  EXPECT_EQ(render("a\n  {% if 1 %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(render("a\n  {% if 1 %}\nb\n  {% endif %}\nc\n", "{}", kPlain), "a\n  \nb\n  \nc");
  EXPECT_EQ(render("a  {{- 1 -}}  b {%+ if 1 +%}\nc{% endif %}"), "a1b \nc");
  EXPECT_EQ(render("a\r\nb\n\n"), "a\nb\n");
  EXPECT_EQ(render("  {# x #}\na {% raw %}{{ x }}{% endraw %}"), "a {{ x }}");
}

TEST(ChatTemplate, keeps_variables_in_their_scope) {
  EXPECT_EQ(
      render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"),
      "231");
  EXPECT_EQ(
      render("{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}"
             "{% endfor %}{{ ns.x }}"),
      "4");
  EXPECT_EQ(render("{% if 1 %}{% set x = 5 %}{% endif %}{{ x }}"), "5");
  EXPECT_EQ(render("{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}"), "2");
}

TEST(ChatTemplate, filters_over_nothing_give_nothing) {
  for (const char* call :
       {"select", "map('upper')", "map", "selectattr('x')", "rejectattr('x', 'no_test')", "reject",
        "map(attribute='x', foo=1)"}) {
    for (const char* value : {"none", "undefined_name", "0", "''", "false", "{}"}) {
      EXPECT_EQ(render(format("{{{{ {} | {} | list }}}}", value, call)), "[]") << value << call;
    }
  }
  EXPECT_THROW(render("{{ 5 | select | list }}"), TemplateError);
}

TEST(ChatTemplate, loops_in_every_form) {
  EXPECT_EQ(
      render("{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% else %}no{% endfor %}"), "x1");
  EXPECT_EQ(
      render("{% for i in range(9) if i % 2 %}{{ loop.index }}{{ i }} {% endfor %}"),
      "11 23 35 47 ");
  EXPECT_EQ(
      render("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
             "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
      "013");
  EXPECT_EQ(
      render(
          "{% for i in t recursive %}{{ i.n }}{{ loop.depth }}{{ loop(i.c) }}{% endfor %}",
          R"({"t":[{"n":"a","c":[{"n":"b","c":[]}]}]})"),
      "a1b2");
  EXPECT_EQ(
      render("{% for i in 'abc' %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.revindex }}"
             "{{ loop.cycle('x', 'y') }}{{ loop.changed(i == 'a') }} {% endfor %}"),
      "b3xTrue ac2yTrue b1xFalse ");
}

TEST(ChatTemplate, calls_macros_with_defaults_and_callers) {
  EXPECT_EQ(
      render("{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}"
             "{{ m(1) }} {{ m(1, 2, 3, z=4) }}"),
      "11!(){} 12(3,){'z': 4}");
  EXPECT_EQ(
      render("{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}"
             "{% call(y) m(7) %}{{ y + 1 }}{% endcall %}"),
      "<8>");
  EXPECT_EQ(
      render("{% filter upper | trim %} ab {% endfilter %}{% set x | upper %}c{% endset %}{{ x }}"),
      "ABC");
  EXPECT_TRUE(contains(fault_of("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"), "macro 'm'"));
}

TEST(ChatTemplate, writes_json_without_escaping_for_html) {
  EXPECT_EQ(
      render("{{ x | tojson }}", R"({"x":{"a":["<é>",1.5,true,null]}})"),
      R"({"a": ["<é>", 1.5, true, null]})");
  EXPECT_EQ(
      render("{{ {'b': [1], 'a': {}} | tojson(indent=2, sort_keys=true) }}"),
      "{\n  \"a\": {},\n  \"b\": [\n    1\n  ]\n}");
  EXPECT_EQ(
      render("{{ 'é😀' | tojson(ensure_ascii=true) }} {{ [1,2] | tojson(separators=(',', ':')) }}"),
      R"("\u00e9\ud83d\ude00" [1,2])");
}

TEST(ChatTemplate, tells_the_time_it_is_given) {
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y %H:%M') }}"), "15 Jan 2026 12:00");
}

TEST(ChatTemplate, refuses_by_name_what_it_does_not_know) {
  EXPECT_TRUE(contains(fault_of("{% include 'x' %}"), "'include'"));
  EXPECT_TRUE(contains(fault_of("a\n{{ x | fancy }}"), "line 2: the filter 'fancy'"));
  EXPECT_TRUE(contains(fault_of("{{ x is fancy }}"), "test 'fancy'"));
  EXPECT_TRUE(contains(fault_of("{% for x in y %}"), "endfor"));
  EXPECT_TRUE(contains(fault_of("{{ 'abc' "), "no end }}"));
  EXPECT_TRUE(contains(fault_of("{{ 'abc"), "closing '"));
  EXPECT_TRUE(contains(fault_of("{{ x.y }}"), "'x' is undefined"));
  EXPECT_EQ(fault_of("{{ raise_exception('roles must alternate') }}"), "roles must alternate");
}

TEST(ChatTemplate, reaches_no_object_of_the_host) {
  EXPECT_EQ(render("{{ ''.__class__ }}|{{ [].__len__ }}|{{ range.__globals__ }}"), "||");
  EXPECT_TRUE(contains(fault_of("{{ ''.__class__.__mro__ }}"), "__class__"));
  EXPECT_TRUE(contains(fault_of("{{ '{0.__class__.x}'.format(1) }}"), "__class__"));
}

TEST(ChatTemplate, stops_bombs) {
  EXPECT_TRUE(contains(fault_of("{{ range(10**12) | list }}"), "too big"));
  EXPECT_TRUE(contains(fault_of("{{ 'x' * 10**12 }}"), "bytes"));
  EXPECT_TRUE(contains(fault_of("{{ [0] * 10**12 }}"), "bytes"));
  EXPECT_TRUE(contains(fault_of("{{ 10 ** 30 }}"), "64 bits"));
  EXPECT_TRUE(contains(fault_of("{{ '%999999999d' % 1 }}"), "wider"));
  EXPECT_TRUE(contains(fault_of("{{ 'x'.ljust(10**12) }}"), "bytes"));
  EXPECT_NE(
      fault_of("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
      "no error");
  EXPECT_NE(
      fault_of("{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(99) %}"
               "{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
      "no error");
  EXPECT_NE(
      fault_of("{% set l = [0] %}{% for a in range(99) %}{{ l.extend(l) }}{% endfor %}"),
      "no error");
  EXPECT_NE(
      fault_of("{% set ns = namespace(l=[1]) %}{% for a in range(99) %}"
               "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}"),
      "no error");
  EXPECT_EQ(render("{% set l = [] %}{{ l.append(l) }}{{ l }}"), "None[[...]]");
}

TEST(ChatTemplate, stops_recursion) {
  EXPECT_TRUE(contains(fault_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "deep"));
  EXPECT_TRUE(contains(
      fault_of(
          "{% set l = [1] %}{{ l.append(l) }}{% for x in l recursive %}{{ loop(l) }}{% endfor %}"),
      "deep"));
  auto repeated = [](char c) { return std::string(100'000, c); };
  EXPECT_TRUE(
      contains(fault_of("{{ " + repeated('(') + "1" + repeated(')') + " }}"), "too deeply"));
  EXPECT_TRUE(contains(fault_of("{{ " + repeated('[') + repeated(']') + " }}"), "too deeply"));
  EXPECT_TRUE(contains(fault_of("{{ " + repeated('-') + "1 }}"), "too deeply"));
  std::string sum = "{{ 0";
  std::string calls = "{{ x";
  std::string nots = "{{ ";
  std::string ifs;
  std::string conditionals = "{{ 1";
  for (int i = 0; i < 100'000; ++i) {
    sum += "+1";
    calls += "()";
    nots += "not ";
    ifs += "{% if 1 %}";
    conditionals += " if 1 else 1";
  }
  EXPECT_TRUE(contains(fault_of(sum + " }}"), "too long"));
  EXPECT_TRUE(contains(fault_of(calls + " }}"), "too long"));
  EXPECT_TRUE(contains(fault_of(nots + "1 }}"), "too deeply"));
  EXPECT_TRUE(contains(fault_of(ifs), "too deeply"));
  EXPECT_TRUE(contains(fault_of(conditionals + " }}"), "too deeply"));
  std::string deep = std::string(500, '[') + std::string(500, ']');
  EXPECT_EQ(render("{{ x | tojson }}{{ x == x }}", "{\"x\":" + deep + "}"), deep + "True");
}

// Spans as text: template parts in angle brackets.
std::string spans_of(std::string_view source, std::string_view json) {
  std::string result;
  for (const TextSpan& span : ChatTemplate::compile(source).render(variables(json), 0)) {
    result += span.parse_special ? "<" + span.text + ">" : span.text;
  }
  return result;
}

TEST(ChatTemplate, marks_what_came_from_the_input) {
  constexpr std::string_view kUser = R"({"m":" hey [X] ","bos_token":"[B]","l":["a","b"]})";
  EXPECT_EQ(spans_of("{{ bos_token }}[U]{{ m }}[E]", kUser), "<[B][U]> hey [X] <[E]>");
  EXPECT_EQ(spans_of("{{ '[U]' + m.strip() + '[E]' }}", kUser), "<[U]>hey [X]<[E]>");
  EXPECT_EQ(spans_of("{{ ('[U]' ~ m)[1:6] | upper }}", kUser), "<U]> HE");
  EXPECT_EQ(
      spans_of("{{ m.replace('[X]', '[T]') }}{{ l | join('|') }}", kUser), " hey <[T]> a<|>b");
  EXPECT_EQ(
      spans_of("{{ m.split('[')[1] }}{{ l }}{{ l | tojson }}", kUser),
      "X] <['>a<', '>b<'][\">a<\", \">b<\"]>");
  EXPECT_EQ(
      spans_of(
          "{% macro f(x) %}({{ x }}){% endmacro %}{% set y %}{{ f(m) }}!{% endset %}{{ y }}",
          kUser),
      "<(> hey [X] <)!>");
  EXPECT_EQ(
      spans_of("{% for c in l %}{{ '%s-' % c }}{{ '{}+'.format(c) }}{% endfor %}", kUser),
      "a<->a<+>b<->b<+>");
}

TEST(ChatTemplate, hostile_model_files_end_in_errors) {
  NEEDS_CASES("gguf-malformed");
  for (const char* name : {"c-dunder", "c-range-bomb", "c-recursion", "c-unterminated"}) {
    SCOPED_TRACE(name);
    // The template is the one long string value of these files; a full parser is not needed here.
    std::string file = read(cases_folder() + "/gguf-malformed/" + name + ".gguf");
    std::string key = "tokenizer.chat_template";
    size_t at = file.find(key);
    ASSERT_NE(at, std::string::npos);
    at += key.size() + 4;  // the type
    uint64_t size = 0;
    std::memcpy(&size, file.data() + at, sizeof(size));
    std::string source = file.substr(at + 8, size);
    EXPECT_NE(fault_of(source, R"({"messages":[{"role":"user","content":"hi"}]})"), "no error")
        << source.substr(0, 200);
  }
}

}  // namespace
}  // namespace nightsweep
