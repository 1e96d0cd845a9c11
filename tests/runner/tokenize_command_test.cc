#include "runner/tokenize_command.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace nightsweep {
namespace {

class TokenizeCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.model = folder_.path("model.gguf");
    write_tiny_llama(options_.model, {});
    tokenizer_ = Tokenizer::from_gguf(GgufModel::open(options_.model));
  }

  std::string convert(const std::string& lines) {
    std::istringstream input(lines);
    std::string output;
    tokenize_lines(*tokenizer_, options_, input, [&](std::string_view data) { output += data; });
    return output;
  }

  std::string error_of(const std::string& lines) {
    try {
      convert(lines);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      return error.what();
    }
    return "";
  }

  std::string run() {
    std::string output;
    EXPECT_EQ(tokenize_command(options_, [&](std::string_view data) { output += data; }), 0);
    return output;
  }

  TemporaryFolder folder_;
  TokenizeOptions options_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// The tiny vocabulary: <unk> 0, <s> 1, </s> 2, byte tokens from 3.

TEST_F(TokenizeCommand, a_line_of_text_becomes_a_line_of_ids_and_back) {
  const std::string ids = convert("{\"text\":\"line\\n\\u00e9\"}\n");
  EXPECT_TRUE(ids.starts_with("{\"ids\":[1,")) << ids;
  options_.decode = true;
  EXPECT_EQ(convert(ids), "{\"text\":\"<s> line\\n\u00E9\"}\n");
  options_.skip_special = true;
  EXPECT_EQ(convert(ids), "{\"text\":\" line\\n\u00E9\"}\n");
}

TEST_F(TokenizeCommand, special_tokens_are_added_by_default_and_parsed_on_demand) {
  EXPECT_EQ(convert(R"({"text":""})"), "{\"ids\":[1]}\n");
  EXPECT_EQ(convert(R"({"text":"","add_special":false})"), "{\"ids\":[]}\n");
  EXPECT_EQ(
      convert(R"({"text":"</s></s>","parse_special":true,"add_special":false})"),
      "{\"ids\":[2,2]}\n");
  EXPECT_EQ(convert(R"({"text":"</s>"})").find(",2,"), std::string::npos);
}

TEST_F(TokenizeCommand, byte_order_mark_crlf_blank_and_unfinished_lines_are_fine) {
  EXPECT_EQ(
      convert("\xEF\xBB\xBF{\"text\":\"\"}\r\n\r\n  \n{\"text\":\"\"}"),
      "{\"ids\":[1]}\n{\"ids\":[1]}\n");
}

TEST_F(TokenizeCommand, a_bad_line_is_refused_with_file_line_and_field) {
  options_.input = "texts.jsonl";
  EXPECT_EQ(
      error_of("{\"text\":\"\"}\n\n{\"text\":3}\n"),
      "texts.jsonl:3: text: expected a string, found the number 3");
  EXPECT_EQ(
      error_of("{\"add_special\":true}"),
      "texts.jsonl:1: text: expected a string, found no such field");
  EXPECT_EQ(
      error_of("{\"text\":\"\",\"add_special\":1}"),
      "texts.jsonl:1: add_special: expected true or false, found the number 1");
  EXPECT_EQ(error_of("[]"), "texts.jsonl:1: expected a JSON object, found an array");
  EXPECT_NE(error_of("{\"text\":\"\",\"txt\":1}").find("texts.jsonl:1: txt: "), std::string::npos);
  EXPECT_NE(error_of("{\"text\":").find("texts.jsonl:1: expected JSON, found"), std::string::npos);
  options_.input = "-";
  EXPECT_NE(error_of("{").find("standard input:1: "), std::string::npos);
}

TEST_F(TokenizeCommand, what_stood_before_a_bad_line_is_written) {
  std::istringstream input("{\"text\":\"\"}\n{\n");
  std::string output;
  EXPECT_THROW(
      tokenize_lines(*tokenizer_, options_, input, [&](std::string_view data) { output += data; }),
      Error);
  EXPECT_EQ(output, "{\"ids\":[1]}\n");
}

TEST_F(TokenizeCommand, ids_must_be_tokens_of_the_vocabulary) {
  options_.decode = true;
  EXPECT_EQ(convert("{\"ids\":[1.0,2]}"), "{\"text\":\"<s></s>\"}\n");
  EXPECT_EQ(convert("{\"ids\":[]}"), "{\"text\":\"\"}\n");
  EXPECT_EQ(
      error_of("{\"ids\":[1,320]}"),
      "standard input:1: ids[1]: expected a token id from 0 to 319, found the number 320");
  for (const char* id : {"-1", "1.5", "\"1\"", "null", "1e300"}) {
    EXPECT_NE(error_of(std::string("{\"ids\":[") + id + "]}").find("ids[0]"), std::string::npos)
        << id;
  }
  EXPECT_NE(error_of("{\"text\":\"\"}").find("standard input:1: text: "), std::string::npos);
}

TEST_F(TokenizeCommand, half_characters_are_decoded_to_replacement_characters) {
  options_.decode = true;
  // Byte tokens of E2 82: a character without its end.
  EXPECT_EQ(convert("{\"ids\":[229,133]}"), "{\"text\":\"\uFFFD\"}\n");
}

TEST_F(TokenizeCommand, takes_a_text_or_a_file) {
  options_.text = "";
  EXPECT_EQ(run(), "{\"ids\":[1]}\n");
  options_.text.reset();
  options_.input = folder_.path("texts.jsonl");
  std::ofstream(options_.input) << "{\"text\":\"\"}\n";
  EXPECT_EQ(run(), "{\"ids\":[1]}\n");
  std::filesystem::remove(options_.input);
  try {
    run();
    ADD_FAILURE() << "a missing file is refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    EXPECT_NE(std::string(error.what()).find(options_.input), std::string::npos);
  }
}

TEST_F(TokenizeCommand, options_that_do_not_go_together_are_refused) {
  options_.text = "a";
  options_.decode = true;
  EXPECT_THROW(run(), Error);
  options_.text.reset();
  options_.decode = false;
  options_.skip_special = true;
  EXPECT_THROW(run(), Error);
}

}  // namespace
}  // namespace nightsweep
