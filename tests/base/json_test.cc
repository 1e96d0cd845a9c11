#include "base/json.h"

#include <gtest/gtest.h>

#include <random>

#include "base/format.h"

namespace nightsweep {
namespace {

std::string error_of(std::string_view text) {
  try {
    Json::parse(text);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "";
}

TEST(Json, objects_keep_the_order_of_their_text) {
  const char* text = R"({"z":1,"a":[true,null,"x"],"m":{"b":2,"a":1.5}})";
  EXPECT_EQ(Json::parse(text).dump(), text);
}

TEST(Json, a_repeated_key_is_refused_at_any_depth) {
  EXPECT_NE(error_of(R"({"a":1,"a":2})").find("\"a\" stands twice"), std::string::npos);
  EXPECT_NE(
      error_of(R"([{"b":{"a":1,"c":2,"a":2}}])").find("\"a\" stands twice"), std::string::npos);
  EXPECT_EQ(error_of(R"({"a":{"a":1},"b":{"a":1}})"), "");
}

TEST(Json, a_repeated_key_is_found_among_many) {
  std::string many = "{";
  for (int i = 0; i < 100; ++i)
    many += format(R"("k{}":0,)", i);
  EXPECT_EQ(error_of(many + R"("last":0})"), "");
  for (const char* repeated : {"k0", "k15", "k16", "k17", "k99"}) {
    EXPECT_NE(
        error_of(format(R"({}"{}":0}})", many, repeated)).find("stands twice"), std::string::npos)
        << repeated;
  }
}

// dump_pretty() of a string is the library's.
TEST(Json, strings_are_written_as_the_library_writes_them) {
  std::vector<std::string> texts = {
      "",
      "plain",
      "\"\\/\b\f\n\r\t",
      std::string("\0\x01\x1f\x7f", 4),
      "na\u00efve \U0001F600 \u2028",
      "cut \xe2\x82",
      "\xff",
      "a\xc0\x80z",
      "\n\xed\xa0\x80\n"};
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same texts every time
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 12, 'a');
    for (char& letter : text) {
      constexpr char kSome[] = "a\"\\\n\x01\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff";
      letter = kSome[random() % (sizeof kSome - 1)];
    }
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    EXPECT_EQ(Json(text).dump(), Json(text).dump_pretty());
    EXPECT_EQ(Json(Json::Object{{text, 1}}).dump(), format("{{{}:1}}", Json(text).dump_pretty()));
  }
}

TEST(Json, values_are_written_compactly) {
  const char* text =
      R"({"a":[],"b":{},"c":[[-9223372036854775808,1.5,1e+300],null,true,false,""],"":{"x":{}}})";
  EXPECT_EQ(Json::parse(text).dump(), text);
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(2.0).dump(), "2.0") << "it stays a double";
}

TEST(Json, what_is_not_json_is_refused) {
  for (const char* text :
       {"NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "01",
        "+1",
        "'a'",
        "{a:1}",
        "[1,]",
        "{\"a\":1,}",
        "[1] 2",
        "\"\t\"",
        "\"a\nb\"",
        "\"\\ud800\"",
        "\"\\udc00x\"",
        "\"\\x\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "",
        " ",
        "{",
        "tru"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

TEST(Json, nothing_behind_a_raw_nul_is_passed_over) {
  EXPECT_NE(error_of(std::string_view("[1]\0garbage", 11)).find("NUL"), std::string::npos);
  EXPECT_NE(error_of(std::string_view("\"a\0b\"", 5)), "");
  EXPECT_NE(error_of("\xEF\xBB\xBF[1]"), "");
}

TEST(Json, an_escaped_nul_and_a_surrogate_pair_are_text) {
  EXPECT_EQ(Json::parse(R"("a\u0000b")").as_string(), std::string("a\0b", 3));
  EXPECT_EQ(Json::parse(R"("\ud83d\ude00")").as_string(), "\xF0\x9F\x98\x80");
}

TEST(Json, integers_may_be_written_as_doubles) {
  int64_t value = 0;
  EXPECT_TRUE(Json::parse("2.0").to_integer(value));
  EXPECT_EQ(value, 2);
  EXPECT_TRUE(Json::parse("1e2").to_integer(value));
  EXPECT_EQ(value, 100);
  EXPECT_FALSE(Json::parse("2.5").to_integer(value));
  EXPECT_FALSE(Json::parse("1e19").to_integer(value));
}

TEST(Json, deep_nesting_is_an_error_and_not_a_crash) {
  std::string deep(100000, '[');
  EXPECT_NE(error_of(deep).find("nested deeper"), std::string::npos);
}

}  // namespace
}  // namespace nightsweep
