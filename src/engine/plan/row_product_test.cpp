// One row times a matrix, in a model of any length.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "graph/build_test.h"
#include "numerics/half.h"

namespace kaon {
namespace {

Tensor numbers(const Shape& shape, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i + seed) * 2654435761U % 1000) / 500 - 1;
  }
  return Tensor::of<float>(shape, values);
}

Tensor narrowed(const Tensor& wide, DType type) {
  std::vector<uint16_t> codes;
  for (const float value : wide.as<float>()) {
    codes.push_back(type == DType::Float16 ? float32_to_float16(value) : float32_to_bfloat16(value));
  }
  return Tensor::copy_bytes(type, wide.shape(), std::as_bytes(std::span(codes)));
}

/// x · w + b, or relu of that, + r, for a matrix that is stored as `stored` says, or turned.
void check(const Tensor& stored, bool turned, const Tensor& x, bool relu) {
  std::vector<Node> nodes;
  std::string weights = "w";
  if (stored.type() != DType::Float32) {
    nodes.push_back(make_node("Cast", {"w"}, {"wide"}, {{"to", static_cast<int64_t>(DType::Float32), {}}}));
    weights = "wide";
  }
  const int64_t outputs = stored.shape()[turned ? 0 : 1];
  nodes.push_back(make_node("Gemm", {"x", weights, "b"}, {"a"}, {{"transB", int64_t{turned}, {}}}));
  if (relu) nodes.push_back(make_node("Relu", {"a"}, {"c"}));
  nodes.push_back(make_node("Add", {relu ? "c" : "a", "r"}, {"y"}));
  ValueInfo of_x = make_value("x", x.shape()), of_r = make_value("r", {1, outputs});
  (*of_x.shape)[1] = Dim{};
  Engine engine(make_model(nodes, {{"w", stored, {}, {}}, {"b", numbers({outputs}, 77), {}, {}}}, {of_x, of_r}, {"y"}));
  const TensorMap inputs{{"x", x}, {"r", numbers({1, outputs}, 5)}};
  Frame frame = engine.start(inputs);
  frame.finish();
  const Tensor expected = frame.outputs()[0], found = engine.run(inputs)[0];
  ASSERT_EQ(found.shape(), expected.shape());
  for (size_t i = 0; i < static_cast<size_t>(outputs); ++i) {
    const float e = expected.as<float>()[i], f = found.as<float>()[i];
    ASSERT_EQ(std::isnan(f), std::isnan(e)) << i;
    if (std::isfinite(e)) {
      ASSERT_NEAR(f, e, 1e-4) << i;
    } else if (!std::isnan(e)) {
      ASSERT_EQ(f, e) << i;
    }
  }
}

TEST(RowProduct, IsTheKernels) {
  for (const auto& [inputs, outputs] : {std::pair{1, 1}, {1, 40}, {40, 1}, {7, 9}, {48, 35}, {130, 1000}, {1000, 66}}) {
    for (const bool turned : {false, true}) {
      const Tensor wide = numbers(turned ? Shape{outputs, inputs} : Shape{inputs, outputs}, 3);
      for (const DType type : {DType::Float32, DType::Float16, DType::BFloat16}) {
        check(type == DType::Float32 ? wide : narrowed(wide, type), turned, numbers({1, inputs}, 11), turned);
      }
    }
  }
}

/// Every number of 16 bits: those below the smallest normal one, infinities and what is no number too.
TEST(RowProduct, WidensEveryNumber) {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  for (const DType type : {DType::Float16, DType::BFloat16}) {
    // As one input, 65536 outputs; then as rows of 16, of which all but one are multiplied by 0, which shows only those
    // that are finite.
    const Tensor all = Tensor::copy_bytes(type, {1, 65536}, std::as_bytes(std::span(codes)));
    const Tensor one = Tensor::of<float>({1, 1}, std::vector<float>{1});
    check(all, false, one, false);
    check(all.reshaped({65536, 1}), true, one, false);
    for (size_t lane : {0U, 13U}) {
      std::vector<float> only(16);
      only[lane] = 1;
      check(all.reshaped({4096, 16}), true, Tensor::of<float>({1, 16}, only), false);
    }
  }
}

}  // namespace
}  // namespace kaon
