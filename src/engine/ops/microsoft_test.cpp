#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

SingleOp microsoft(const std::string& name) { return {name, 17, "com.microsoft"}; }
Tensor i32(Shape shape, const std::vector<int32_t>& values) { return Tensor::of<int32_t>(std::move(shape), values); }

constexpr float kLn2 = 0.693147181F;
// Query, key and value are x itself: 0 and ln 2, so that the second query weighs the second key by 2^ln2 to 1.
const Tensor kX = floats({1, 2, 1}, {0, kLn2});
const Tensor kWeight = floats({1, 3}, {1, 1, 1});
const Tensor kBias = floats({3}, {0, 0, 0});
constexpr float kFirst = 0.346573590F;
constexpr float kSecond = 0.428264151F;

TEST(Microsoft, FusedGemmActivates) {
  SingleOp op = microsoft("FusedGemm");
  op.text("activation", "LeakyRelu").real("activation_alpha", 0.5F).real("alpha", 2);
  expect_floats(op.run({floats({1, 2}, {1, -2}), floats({2, 2}, {1, 3, 0, 4}), floats({2}, {1, 2})})[0], {1, 2},
                {3, -4});
  EXPECT_THROW(op.text("activation", "Swirl").run({floats({1, 1}, {1}), floats({1, 1}, {1})}), Error);
}

TEST(Microsoft, AttentionMasks) {
  const auto run = [&](const Tensor& mask, int64_t causal) {
    return microsoft("Attention")
        .number("num_heads", 1)
        .number("unidirectional", causal)
        .run({kX, kWeight, kBias, mask})[0];
  };
  expect_floats(run({}, 0), {1, 2, 1}, {kFirst, kSecond});
  expect_floats(run({}, 1), {1, 2, 1}, {0, kSecond});
  expect_floats(run(i32({1}, {1}), 0), {1, 2, 1}, {0, 0});
  expect_floats(run(i32({1, 2}, {0, 1}), 0), {1, 2, 1}, {kLn2, kLn2});
  expect_floats(run(i32({1, 2, 2}, {0, 1, 1, 1}), 0), {1, 2, 1}, {kLn2, kSecond});
  EXPECT_THROW(run(i32({5}, {1, 1, 1, 1, 1}), 0), Error);
}

TEST(Microsoft, AttentionGoesOnFromItsPast) {
  SingleOp op = microsoft("Attention");
  op.number("num_heads", 1).number("unidirectional", 1);
  const Tensor past = floats({2, 1, 1, 1, 1}, {0, 0});
  const std::vector<Tensor> y = op.run({floats({1, 1, 1}, {kLn2}), kWeight, kBias, {}, past}, 2);
  expect_floats(y[0], {1, 1, 1}, {kSecond});
  expect_floats(y[1], {2, 1, 1, 2, 1}, {0, kLn2, 0, kLn2});
}

TEST(Microsoft, MultiHeadAttentionAddsTheBiasOfEachPart) {
  SingleOp op = microsoft("MultiHeadAttention");
  op.number("num_heads", 1);
  const Tensor shifted = floats({1, 2, 1}, {-1, kLn2 - 1});
  expect_floats(op.run({kX, shifted, shifted, floats({3}, {0, 1, 1})})[0], {1, 2, 1}, {kFirst, kSecond});
  expect_floats(op.run({kX, kX, kX, {}, i32({1, 2}, {1, 0})})[0], {1, 2, 1}, {0, 0});
  EXPECT_THROW(op.run({kX}), Error);
}

TEST(Microsoft, EmbedLayerNormalization) {
  const Tensor ids = i32({1, 2}, {1, 0});
  const std::vector<Tensor> y =
      microsoft("EmbedLayerNormalization")
          .run({ids, i32({1, 2}, {0, 1}), floats({2, 2}, {0, 4, 1, 1}), floats({2, 2}, {0, 1, 0, 0}),
                floats({2, 2}, {3, 0, 0, 0}), floats({2}, {2, 3}), floats({2}, {10, 20}), i32({1, 2}, {1, 0})},
               3);
  expect_floats(y[0], {1, 2, 2}, {12, 17, 8, 23});
  expect_longs(y[1], {1}, {1});
  expect_floats(y[2], {1, 2, 2}, {4, 2, 0, 4});
}

}  // namespace
}  // namespace kaon
