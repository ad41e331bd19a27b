#include "base/utf8.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

bool is_scalar(char32_t c) { return c < 0xD800 || (c >= 0xE000 && c < 0x110000); }

TEST(Utf8, EveryCharacterThereAndBack) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string bytes;
    append_utf8(c, bytes);
    ASSERT_EQ(utf8_length(bytes), is_scalar(c) ? bytes.size() : 0) << static_cast<uint32_t>(c);
    if (!is_scalar(c)) continue;
    std::string_view rest = bytes;
    ASSERT_EQ(take_utf8(rest), c);
    ASSERT_TRUE(rest.empty());
  }
}

TEST(Utf8, FindsTheFirstBadByte) {
  EXPECT_EQ(find_invalid_utf8("plain and größe and 日本語"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("12345678\xFFz"), 8U);
  EXPECT_EQ(find_invalid_utf8("abc\xC3"), 3U);
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0U);
}

/// As Unicode recommends: one mark for as much as could have begun a character.
TEST(Utf8, Lossy) {
  EXPECT_EQ(lossy_utf8("a\xF0\x9F\x98z"), "a\uFFFDz");
  EXPECT_EQ(lossy_utf8("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(lossy_utf8("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(lossy_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy_utf8("\xE2\x82\xE2\x82\xAC"), "\uFFFD€");
  EXPECT_EQ(lossy_utf8("größe"), "größe");
}

}  // namespace
}  // namespace kaon
