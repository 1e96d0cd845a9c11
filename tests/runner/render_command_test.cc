#include "runner/render_command.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "support/cases.h"
#include "support/expect_error.h"
#include "support/program.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace nightsweep {
namespace {

constexpr const char* kUserLine = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n";

class RenderCommand : public testing::Test {
 protected:
  std::string write_file(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path(name), std::ios::binary) << text;
    return folder_.path(name);
  }

  // What the command writes for the lines; `code`: what it must return.
  std::string render(const std::string& lines, int code = 0) {
    options_.input_path = write_file("chats.jsonl", lines);
    std::string output;
    EXPECT_EQ(render_command(options_, [&](std::string_view data) { output += data; }), code)
        << output;
    return output;
  }

  std::string render_with(const std::string& source, const std::string& lines, int code = 0) {
    options_.model_path.clear();
    options_.template_path = write_file("template.jinja", source);
    return render(lines, code);
  }

  std::string render_with_model(const std::string& source, const std::string& lines, int code = 0) {
    TinyModelOptions model;
    model.chat_template = source;
    options_.model_path = folder_.path("tiny.gguf");
    write_tiny_llama(options_.model_path, model);
    return render(lines, code);
  }

  TemporaryFolder folder_;
  RenderOptions options_;
};

TEST_F(RenderCommand, messages_become_one_text_a_line) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(
      render_with(
          source,
          "{\"messages\":[{\"role\":\"system\",\"content\":\"be \\u00e9\"},"
          "{\"role\":\"user\",\"content\":\"a\\nb\"}]}\n\n"
          "{\"messages\":[],\"add_generation_prompt\":false}"),
      "{\"text\":\"<system>be \u00e9<user>a\\nb<assistant>\"}\n{\"text\":\"\"}\n");
}

TEST_F(RenderCommand, a_generation_prompt_is_asked_for_unless_the_line_says_no) {
  const std::string source = "{{ add_generation_prompt }}";
  EXPECT_EQ(
      render_with(source, "{}\n{\"add_generation_prompt\":false}\n"),
      "{\"text\":\"True\"}\n{\"text\":\"False\"}\n");
}

TEST_F(RenderCommand, tools_and_further_variables_reach_the_template) {
  EXPECT_EQ(
      render_with(
          "{{ tools[0].name }} {{ enable_thinking }} {{ messages | length }}",
          "{\"tools\":[{\"name\":\"f\"}],\"messages\":[],"
          "\"chat_template_kwargs\":{\"enable_thinking\":false}}\n"),
      "{\"text\":\"f False 0\"}\n");
  EXPECT_EQ(
      render_with("{{ x is defined }}", "{\"chat_template_kwargs\":null}\n"),
      "{\"text\":\"False\"}\n");
}

TEST_F(RenderCommand, special_tokens_come_from_the_line_or_the_model) {
  const std::string source = "{{ bos_token }}|{{ eos_token }}";
  const std::string line = "{\"bos_token\":\"<B>\",\"eos_token\":\"<E>\"}\n";
  EXPECT_EQ(render_with(source, line), "{\"text\":\"<B>|<E>\"}\n");
  EXPECT_EQ(render_with(source, "{}\n"), "{\"text\":\"|\"}\n");
  EXPECT_EQ(
      render_with_model(source, "{}\n" + line),
      "{\"text\":\"<s>|</s>\"}\n{\"text\":\"<B>|<E>\"}\n");
}

TEST_F(RenderCommand, an_unknown_key_is_refused_by_name_and_the_others_go_on) {
  const std::string output = render_with("ok", "{\"message\":[]}\n{}\n", 1);
  EXPECT_NE(output.find("{\"error\":\"the key 'message' is not known"), std::string::npos)
      << output;
  EXPECT_TRUE(output.ends_with("\n{\"text\":\"ok\"}\n")) << output;
}

TEST_F(RenderCommand, a_bad_line_is_an_error_line_with_exit_code_1) {
  EXPECT_EQ(
      render_with("ok", "[]\n", 1), "{\"error\":\"a line must be an object, found an array\"}\n");
  EXPECT_TRUE(render_with("ok", "{\"messages\":\n", 1)
                  .starts_with("{\"error\":\"expected JSON, found an error at byte 12: "));
  EXPECT_EQ(
      render_with("ok", "{\"chat_template_kwargs\":[]}\n", 1),
      "{\"error\":\"chat_template_kwargs must be an object, found an array\"}\n");
  EXPECT_EQ(
      render_with("\n{{ raise_exception('roles must alternate') }}", "{}\n", 1),
      "{\"error\":\"roles must alternate\"}\n");
}

TEST_F(RenderCommand, a_template_that_cannot_be_compiled_is_the_error_of_every_line) {
  const std::string error =
      "{\"error\":\"the chat template cannot be compiled: line 1: the filter 'nope' is not "
      "known\"}\n";
  EXPECT_EQ(render_with("{{ x | nope }}", "{}\n{}\n", 1), error + error);
  EXPECT_EQ(render_with_model("{{ x | nope }}", "{}\n", 1), error);
}

TEST_F(RenderCommand, the_clock_can_be_fixed) {
  options_.now_unix_s = 1721997000;  // 2024-07-26T12:30:00
  EXPECT_EQ(
      render_with("{{ strftime_now('%d %b %Y %H:%M') }}", "{}\n"),
      "{\"text\":\"26 Jul 2024 12:30\"}\n");
}

TEST_F(RenderCommand, byte_order_mark_crlf_and_blank_lines_are_fine) {
  EXPECT_EQ(
      render_with("x", "\xEF\xBB\xBF{}\r\n\r\n \t\n{}"), "{\"text\":\"x\"}\n{\"text\":\"x\"}\n");
}

TEST_F(RenderCommand, missing_files_and_templates_are_named) {
  auto nowhere = [](std::string_view) {};
  options_.template_path = folder_.path("none.jinja");
  EXPECT_ERROR(ErrorKind::input, render_command(options_, nowhere), "none.jinja");
  options_.template_path = write_file("template.jinja", "x");
  options_.input_path = folder_.path("none.jsonl");
  EXPECT_ERROR(ErrorKind::input, render_command(options_, nowhere), "none.jsonl");
}

TEST_F(RenderCommand, a_model_without_a_template_is_the_error_of_every_line) {
  options_.model_path = folder_.path("tiny.gguf");
  write_tiny_llama(options_.model_path, {});
  const std::string error = "{\"error\":\"" + options_.model_path + " has no chat template\"}\n";
  EXPECT_EQ(render(std::string(kUserLine) + kUserLine, 1), error + error);
}

TEST_F(RenderCommand, hostile_templates_of_model_files_end_in_error_lines_within_a_second) {
  NEEDS_CASES("gguf-malformed");
  for (const char* name : {"c-unterminated", "c-range-bomb", "c-recursion", "c-dunder"}) {
    options_.model_path = format("{}/gguf-malformed/{}.gguf", cases_folder(), name);
    auto begin = std::chrono::steady_clock::now();
    const std::string output = render(kUserLine, 1);
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(output.starts_with("{\"error\":\"")) << name << ": " << output;
    EXPECT_LT(taken.count(), 1.0) << name;
  }
}

using RenderProgram = ProgramTest;

TEST_F(RenderProgram, lines_go_from_a_file_to_stdout_and_errors_end_it_with_1) {
  const std::string in = write_file("in.jsonl", kUserLine);
  Outcome outcome = run({"render", "--model", model(), in});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "{\"text\":\"<user>hi\"}\n");

  const std::string source = write_file("t.jinja", "{{ strftime_now('%Y-%m-%d') }}");
  const std::string mixed = write_file("mixed.jsonl", "{}\n{\"nope\":1}\n");
  outcome = run({"render", "--template", source, "--now", "2024-07-26", mixed});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(outcome.out.starts_with("{\"text\":\"2024-07-26\"}\n{\"error\":")) << outcome.out;

  EXPECT_EQ(run({"render", "--template", source, "--model", model(), in}).code, 2);
  EXPECT_EQ(run({"render", "--template", source, "--now", "noon", in}).code, 2);
}

TEST_F(RenderProgram, a_closed_pipe_ends_it_quietly) {
  const std::string in = write_file("in.jsonl", kUserLine);
  int pipe_ends[2];
  // Closed by exec, so that the child is not a reader of its own.
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  pid_t child = start({"render", "--model", model(), in}, format("/dev/fd/{}", pipe_ends[1]));
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(read(folder_.path("err")), "");
}

}  // namespace
}  // namespace nightsweep
