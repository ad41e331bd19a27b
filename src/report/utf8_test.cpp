#include "report/utf8.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

TEST(Utf8, KeepsWhatIsValid) {
  for (const char* text : {"", "plain", "größe", "日本語", "𝛼"}) EXPECT_EQ(printable_utf8(text), text);
}

TEST(Utf8, ReplacesTheRest) {
  EXPECT_EQ(printable_utf8("a\x01\nb\x7F"), "a  b ");
  EXPECT_EQ(printable_utf8("\xFFz"), "\uFFFDz");
  EXPECT_EQ(printable_utf8("z\xC3"), "z\uFFFD");
  EXPECT_EQ(printable_utf8("\xC0\x80"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(printable_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(printable_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
}

TEST(Utf8, Letters) {
  const std::vector<std::string_view> expected{"a", "ö", "語", "𝛼"};
  EXPECT_EQ(utf8_letters("aö語𝛼"), expected);
}

}  // namespace
}  // namespace kaon
