#include "graph/stored.h"

#include "graph/build_test.h"

namespace kaon {
namespace {

/// 1, -2 in 16 bits.
Tensor two_halves(DType type) {
  const std::vector<uint16_t> bits =
      type == DType::Float16 ? std::vector<uint16_t>{0x3C00, 0xC000} : std::vector<uint16_t>{0x3F80, 0xC000};
  return Tensor::copy_bytes(type, {1, 2}, std::as_bytes(std::span(bits)));
}

Model half_model(DType to = DType::Float32) {
  return make_model({make_node("Cast", {"w16"}, {"w"}, {{"to", static_cast<int64_t>(to), {}}}),
                     make_node("MatMul", {"x", "w"}, {"y"})},
                    {{"w16", two_halves(DType::Float16), {}, {}}, make_counting("v", {2})}, {make_value("x", {1, 1})},
                    {"y"});
}

TEST(Stored, ViewsReadEachFloatType) {
  for (const DType type : {DType::Float16, DType::BFloat16}) {
    EXPECT_EQ(float_view(two_halves(type)).at(1), -2.0F);
    EXPECT_EQ(widened(two_halves(type)).as<float>()[1], -2.0F);
  }
  const Tensor floats = Tensor::of<float>({2}, std::vector<float>{3, 4});
  EXPECT_EQ(float_view(floats).at(1), 4.0F);
  EXPECT_EQ(widened(floats).bytes().data(), floats.bytes().data());
  error_of(ErrorCode::InvalidInput, [] { float_view(Tensor::of<int64_t>({1}, std::vector<int64_t>{1})); });
}

TEST(Stored, ConstantsAreFoundBehindTheirCast) {
  const Model model = half_model();
  EXPECT_EQ(find_stored(model.graph, "v")->name, "v");
  EXPECT_EQ(find_stored(model.graph, "w")->name, "w16");
  EXPECT_EQ(find_stored(model.graph, "y"), nullptr);
  EXPECT_EQ(find_stored(model.graph, "x"), nullptr);
  EXPECT_EQ(find_stored(half_model(DType::Float64).graph, "w"), nullptr);
}

TEST(Stored, NewNumbersTakeThePlaceOfTheCast) {
  Model model = half_model();
  store(model.graph, "w", Tensor::of<float>({1, 2}, std::vector<float>{5, 6}));
  store(model.graph, "v", Tensor::of<float>({2}, std::vector<float>{7, 8}));
  EXPECT_EQ(model.graph.nodes.size(), 1U);
  EXPECT_EQ(model.graph.find_initializer("w")->tensor.as<float>()[1], 6.0F);
  EXPECT_EQ(model.graph.find_initializer("v")->tensor.as<float>()[0], 7.0F);
}

}  // namespace
}  // namespace kaon
