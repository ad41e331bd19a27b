#include "graph/fake_quantize.h"

#include "graph/build_test.h"

namespace kaon {
namespace {

TEST(FakeQuantizeNode, WritesTheSpecAndReadsItBack) {
  const TensorSpec spec{.format = "uint4",
                        .granularity = Granularity::PerGroup,
                        .axis = -1,
                        .group_size = 64,
                        .symmetric = false,
                        .scale_type = ScaleType::Float16,
                        .rounding = Rounding::HalfAway,
                        .block_scale = BlockScaleMode::Ceil};
  const Node node = make_fake_quantize(spec, "x", "y", "s", "z");
  EXPECT_EQ(node.domain, kKaon);
  EXPECT_EQ(node.inputs, (std::vector<std::string>{"x", "s", "z"}));
  EXPECT_EQ(node.outputs, (std::vector<std::string>{"y"}));
  EXPECT_EQ(fake_quantize_spec(node), spec);
}

TEST(FakeQuantizeNode, DefaultsAreLeftOut) {
  const Node node = make_fake_quantize({}, "x", "y");
  EXPECT_EQ(node.inputs, (std::vector<std::string>{"x"}));
  ASSERT_EQ(node.attributes.size(), 1U);
  EXPECT_EQ(node.attributes[0].name, "format");
  EXPECT_EQ(fake_quantize_spec(node), TensorSpec{});
}

TEST(FakeQuantizeNode, AZeroPointNeedsAScale) {
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [] { make_fake_quantize({}, "x", "y", "", "z"); }).find("scale"),
            std::string::npos);
}

TEST(FakeQuantizeNode, AttributesThatMakeNoSenseNameTheNode) {
  for (const char* attribute : {"format", "granularity", "scale_type", "rounding", "block_scale"}) {
    Node node = make_fake_quantize({}, "x", "y");
    node.name = "here";
    node.set(attribute, std::string("nonsense"));
    try {
      fake_quantize_spec(node);
      ADD_FAILURE() << attribute;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidInput) << attribute;
      EXPECT_EQ(error.where(), node.label()) << attribute;
      EXPECT_NE(std::string(error.what()).find("nonsense"), std::string::npos) << attribute;
    }
    node.set(attribute, int64_t{3});
    EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { fake_quantize_spec(node); }).find(attribute), std::string::npos);
  }
}

}  // namespace
}  // namespace kaon
