#include "graph/describe.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

TEST(DescribeValue, TypeAndShape) {
  ValueInfo info{.name = "x", .type = DType::Float32};
  EXPECT_EQ(describe(info), "float32 of any shape");
  info.shape = std::vector<Dim>{};
  EXPECT_EQ(describe(info), "float32 []");
  info.shape = std::vector<Dim>{{std::nullopt, "batch"}, {3, ""}, {std::nullopt, ""}};
  EXPECT_EQ(describe(info), "float32 [batch, 3, ?]");
  info.type = DType::Undefined;
  EXPECT_EQ(describe(info), "any type [batch, 3, ?]");
}

}  // namespace
}  // namespace kaon
