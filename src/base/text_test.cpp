#include "base/text.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

TEST(Nearest, FindsTheLikelyTypo) {
  const std::vector<std::string> names{"int4", "int8", "fp8_e4m3", "fp8_e5m2", "formats"};
  EXPECT_EQ(nearest("fp8_e4m", names), "fp8_e4m3");
  EXPECT_EQ(nearest("fp8_e5m3", names), "fp8_e4m3") << "the first of equally near names";
  EXPECT_EQ(nearest("frmats", names), "formats");
  EXPECT_EQ(nearest("int8", names), "int8");
  EXPECT_EQ(nearest("uint8", names), "int8");
}

TEST(Nearest, OffersNothingWhenNothingIsNear) {
  EXPECT_EQ(nearest("zzzz", {"int8", "formats"}), "");
  EXPECT_EQ(nearest("int8", {}), "");
}

TEST(GlobMatch, LiteralsQuestionMarksAndStars) {
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_TRUE(glob_match("abc", "abc"));
  EXPECT_FALSE(glob_match("abc", "abcd"));
  EXPECT_FALSE(glob_match("abcd", "abc"));
  EXPECT_TRUE(glob_match("a?c", "abc"));
  EXPECT_FALSE(glob_match("a?c", "ac"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("model.layers.*.mlp.*", "model.layers.10.mlp.down_proj"));
  EXPECT_FALSE(glob_match("model.layers.*.mlp", "model.layers.10.mlp.down_proj"));
  EXPECT_TRUE(glob_match("*ab*ab", "abaabab")) << "a star must be able to give back what it took";
  EXPECT_FALSE(glob_match("*a*b", "ba"));
  EXPECT_TRUE(glob_match("Conv_[0-9]", "Conv_7"));
  EXPECT_FALSE(glob_match("Conv_[0-9]", "Conv_17"));
  EXPECT_TRUE(glob_match("Conv_[13-5]*", "Conv_41"));
  EXPECT_FALSE(glob_match("Conv_[13-5]*", "Conv_2"));
  EXPECT_TRUE(glob_match("*[!0-9]1", "Conv_1"));
  EXPECT_FALSE(glob_match("*[!0-9]1", "Conv_11"));
  EXPECT_TRUE(glob_match("a[]]b", "a]b"));
  EXPECT_TRUE(glob_match("*[0-9]x", "1a2x")) << "a star must be able to give back what it took";
  EXPECT_TRUE(glob_match("a[0]", "a[0]")) << "the name itself";
  EXPECT_TRUE(glob_match("a[[]0]*", "a[0].b"));
  EXPECT_TRUE(glob_match("a[0*", "a[0]")) << "a set without an end stands for itself";
}

TEST(GlobMatch, ManyStarsStayFast) {
  std::string pattern, text(5000, 'a');
  for (int i = 0; i < 50; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "*b", text));
}

TEST(HumanBytes, PicksTheUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes(1.5 * 1024 * 1024 * 1024), "1.5 GiB");
  EXPECT_EQ(human_bytes(3.0 * 1024 * 1024 * 1024 * 1024 * 1024), "3072.0 TiB");
}

}  // namespace
}  // namespace kaon
