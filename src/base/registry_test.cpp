#include "base/registry.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

Registry<int> three() {
  Registry<int> registry("fruit");
  registry.add("pear", 1);
  registry.add("apple", 2);
  registry.add("quince", 3);
  return registry;
}

TEST(Registry, KeepsTheOrderOfAddition) {
  const auto registry = three();
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"pear", "apple", "quince"}));
  ASSERT_EQ(registry.items().size(), 3U);
  EXPECT_EQ(registry.items()[1].second, 2);
}

TEST(Registry, FindsByName) {
  const auto registry = three();
  ASSERT_NE(registry.find("quince"), nullptr);
  EXPECT_EQ(*registry.find("quince"), 3);
  EXPECT_EQ(registry.find("plum"), nullptr);
  EXPECT_EQ(registry.get("apple"), 2);
}

TEST(Registry, UnknownNameThrowsWithTheNearest) {
  try {
    three().get("aple");
    FAIL() << "an unknown name was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
    EXPECT_STREQ(error.what(), "aple: unknown fruit; did you mean 'apple'?");
  }
}

TEST(Registry, UnknownNameWithNothingNear) {
  try {
    three().get("zzzzzzzz");
    FAIL() << "an unknown name was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "zzzzzzzz: unknown fruit");
  }
}

TEST(Registry, DuplicateThrowsAndChangesNothing) {
  auto registry = three();
  EXPECT_THROW(registry.add("pear", 9), Error);
  EXPECT_EQ(registry.get("pear"), 1);
  EXPECT_EQ(registry.items().size(), 3U);
}

}  // namespace
}  // namespace kaon
