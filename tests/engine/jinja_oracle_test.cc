// Random templates against Python's Jinja2 (Debian: python3-jinja2).
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>

#include "base/format.h"
#include "engine/chat_template.h"
#include "support/output_of.h"

namespace nightsweep {
namespace {

constexpr int kCases = 1000;
constexpr int kSeed = 20260115;

TEST(ChatTemplate, renders_random_templates_as_python_does) {
  std::string python = "/usr/bin/python3";
  if (output_of(python + " -c 'import jinja2; print(1)' 2>/dev/null") != "1\n") {
    GTEST_SKIP() << "SKIPPED: no python3-jinja2";
  }
  std::istringstream lines(output_of(
      format("timeout 300 {} tests/engine/jinja_oracle.py {} {}", python, kCases, kSeed)));
  std::string line;
  int n_cases = 0;
  int n_equal = 0;
  while (std::getline(lines, line)) {
    ++n_cases;
    Json test = Json::parse(line);
    bool trim = test.find("trim")->as_bool();
    TemplateOptions options{.trim_blocks = trim, .lstrip_blocks = trim};
    const Json* expected = test.find("expected");
    std::string found;
    bool is_error = false;
    try {
      ChatTemplate compiled =
          ChatTemplate::compile(test.find("template")->as_string(), {}, options);
      found = joined(compiled.render(*test.find("context"), 0));
    } catch (const TemplateError& error) {
      is_error = true;
      found = error.what();
    }
    bool is_equal = expected != nullptr ? !is_error && found == expected->as_string() : is_error;
    n_equal += is_equal ? 1 : 0;
    EXPECT_TRUE(is_equal) << "template: " << test.find("template")->as_string()
                          << "\ncontext: " << test.find("context")->dump() << "\nexpected: "
                          << (expected != nullptr ? expected->as_string()
                                                  : test.find("error")->as_string())
                          << "\nfound: " << found << "\n";
  }
  EXPECT_EQ(n_cases, kCases);
  std::printf("%d of %d random templates as in Python\n", n_equal, n_cases);
}

}  // namespace
}  // namespace nightsweep
