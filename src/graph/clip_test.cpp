#include "graph/clip.h"

#include <gtest/gtest.h>

#include <map>

#include "graph/build_test.h"

namespace kaon {
namespace {

std::optional<ClipBounds> bounds_of(const Node& node) {
  static const std::map<std::string, float> kKnown{{"one", 1}, {"six", 6}};
  return clip_bounds(node, [&](size_t i) -> std::optional<float> {
    const auto found = kKnown.find(node.inputs[i]);
    return found == kKnown.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(ClipBounds, FromAttributesInputsOrTheOperator) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  constexpr float kMost = std::numeric_limits<float>::max();
  EXPECT_EQ(bounds_of(make_node("Relu", {"x"}, {"y"}))->low, 0);
  EXPECT_EQ(bounds_of(make_node("Relu", {"x"}, {"y"}))->high, kMost);
  EXPECT_EQ(bounds_of(make_node("Clip", {"x"}, {"y"}))->low, kLowest);
  EXPECT_EQ(bounds_of(make_node("Clip", {"x"}, {"y"}, {{"max", 3.0F, {}}}))->high, 3);
  EXPECT_EQ(bounds_of(make_node("Clip", {"x", "one", "six"}, {"y"}))->low, 1);
  EXPECT_EQ(bounds_of(make_node("Clip", {"x", "one", "six"}, {"y"}))->high, 6);
  EXPECT_EQ(bounds_of(make_node("Clip", {"x", "", "six"}, {"y"}))->low, kLowest);
  EXPECT_FALSE(bounds_of(make_node("Clip", {"x", "one", "made"}, {"y"})));
  EXPECT_FALSE(bounds_of(make_node("Tanh", {"x"}, {"y"})));
}

}  // namespace
}  // namespace kaon
