#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/tokenizer.h"

namespace nightsweep {
namespace {

TEST(StreamDecoder, never_gives_half_a_character) {
  StreamDecoder decoder;
  EXPECT_EQ(decoder.push("a\xF0\x9F"), "a");
  EXPECT_EQ(decoder.push("\x98"), "");
  EXPECT_EQ(decoder.push("\x80z"), "\U0001F600z");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, invalid_bytes_become_what_python_makes_of_them) {
  // Python: bytes.decode(errors="replace").
  const std::pair<std::string, std::string> cases[] = {
      {"\xFF", "\uFFFD"},
      {"\xC3(", "\uFFFD("},
      {"\xC0\x80", "\uFFFD\uFFFD"},
      {"\xE2\x82", "\uFFFD"},
      {"\xE2\x82x", "\uFFFDx"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xF0\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xF0\x9F\xF0\x9F\x98\x80", "\uFFFD\U0001F600"},
  };
  for (const auto& [bytes, expected] : cases) {
    StreamDecoder whole;
    std::string text = whole.push(bytes);
    text += whole.finish();
    EXPECT_EQ(text, expected);
    StreamDecoder bytewise;
    text.clear();
    for (char byte : bytes)
      text += bytewise.push({&byte, 1});
    text += bytewise.finish();
    EXPECT_EQ(text, expected);
  }
}

TEST(StreamDecoder, gives_invalid_bytes_as_soon_as_they_are_certain) {
  StreamDecoder decoder;
  EXPECT_EQ(decoder.push("\xE2"), "");
  EXPECT_EQ(decoder.push("("), "\uFFFD(");
  EXPECT_EQ(decoder.push("\x80"), "\uFFFD");
}

}  // namespace
}  // namespace nightsweep
