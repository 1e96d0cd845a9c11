#include "jobs/utf8.h"

#include <gtest/gtest.h>

namespace nightsweep {
namespace {

constexpr const char* kBroken = "\xEF\xBF\xBD";

TEST(Utf8, whole_characters_are_measured) {
  EXPECT_EQ(utf8_length("a"), 1u);
  EXPECT_EQ(utf8_length("\xC3\xA4x"), 2u);
  EXPECT_EQ(utf8_length("\xE2\x82\xAC"), 3u);
  EXPECT_EQ(utf8_length("\xF0\x9F\x98\x80"), 4u);
  for (const char* broken :
       {"", "\x80", "\xC3", "\xC0\x80", "\xE2\x82", "\xED\xA0\x80", "\xE0\x80\x80",
        "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(utf8_length(broken), 0u);
  }
}

// As Python's bytes.decode("utf-8", "replace").
TEST(Utf8, each_maximal_broken_part_becomes_one_mark) {
  std::string one = kBroken;
  EXPECT_EQ(lossy_utf8("a\xC3\xA4"), "a\xC3\xA4");
  EXPECT_EQ(lossy_utf8("\xF0\x9F\x98"), one);
  EXPECT_EQ(
      lossy_utf8("\xF0\x9F"
                 "a"),
      one + "a");
  EXPECT_EQ(lossy_utf8("\x98\x80"), one + one);
  EXPECT_EQ(lossy_utf8("\xED\xA0\x80"), one + one + one);
  EXPECT_EQ(lossy_utf8("\xE2\x82\xE2\x82\xAC"), one + "\xE2\x82\xAC");
  EXPECT_EQ(lossy_utf8("\xC0\x80"), one + one);
}

TEST(Utf8, printable_text_is_short_and_on_one_line) {
  EXPECT_EQ(printable("a\nb\x1b\x7f"), "a\\u000ab\\u001b\\u007f");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("\xff"), kBroken);
  EXPECT_EQ(printable("\xC3\xA4\xC3\xA4", 1), "\xC3\xA4...");
}

}  // namespace
}  // namespace nightsweep
