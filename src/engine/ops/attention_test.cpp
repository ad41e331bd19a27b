#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

// Queries of zero look at every key they may alike, so outputs are means of values.
TEST(Attention, CausalQueriesLookBack) {
  SingleOp op("Attention", 23);
  op.number("is_causal", 1).number("q_num_heads", 2).number("kv_num_heads", 1);
  const Tensor query = floats({1, 2, 2}, {0, 0, 0, 0});
  expect_floats(op.run({query, counting({1, 3, 1}), floats({1, 3, 1}, {2, 4, 9})})[0], {1, 2, 2}, {2, 2, 3, 3});
}

TEST(Attention, PastKeysCountForCausality) {
  SingleOp op("Attention", 23);
  op.number("is_causal", 1);
  const auto one = [](float value) { return floats({1, 1, 1, 1}, {value}); };
  const std::vector<Tensor> y = op.run({one(0), one(7), one(9), {}, one(5), one(1)}, 3);
  expect_floats(y[0], {1, 1, 1, 1}, {5});
  expect_floats(y[1], {1, 1, 2, 1}, {5, 7});
  expect_floats(y[2], {1, 1, 2, 1}, {1, 9});
}

TEST(Attention, FullyMaskedQueryYieldsZeros) {
  const Tensor mask = Tensor::copy_bytes(DType::Bool, {2, 2}, std::vector<std::byte>{{}, {}, std::byte{1}, {}});
  const Tensor query = floats({1, 1, 2, 1}, {0, 0});
  expect_floats(SingleOp("Attention", 23).run({query, query, floats({1, 1, 2, 1}, {3, 5}), mask})[0], {1, 1, 2, 1},
                {0, 3});
}

TEST(Attention, ScoresAreCappedAndScaled) {
  SingleOp op("Attention", 24);
  op.real("softcap", 2).real("scale", 0.5F).number("qk_matmul_output_mode", 1);
  const Tensor one = floats({1, 1, 1, 1}, {4});
  expect_floats(op.run({one, one, one}, 4)[3], {1, 1, 1, 1}, {1.998659F});
}

TEST(Attention, HeadsThatDoNotDivideFail) {
  SingleOp op("Attention", 23);
  op.number("q_num_heads", 3).number("kv_num_heads", 2);
  EXPECT_THROW(op.run({counting({1, 1, 3}), counting({1, 1, 2}), counting({1, 1, 2})}), Error);
  EXPECT_THROW(op.run({counting({1, 1, 4}), counting({1, 1, 2}), counting({1, 1, 2})}), Error);
}

// A quarter turn maps the pair (a, b) to (-b, a).
TEST(RotaryEmbedding, TurnsHalvesOrNeighbours) {
  const Tensor x = counting({1, 1, 1, 4});
  const Tensor cosine = floats({2, 2}, {1, 1, 0, 0});
  const Tensor sine = floats({2, 2}, {0, 0, 1, 1});
  const Tensor position = longs({1, 1}, {1});
  expect_floats(SingleOp("RotaryEmbedding", 23).run({x, cosine, sine, position})[0], {1, 1, 1, 4}, {-3, -4, 1, 2});
  expect_floats(SingleOp("RotaryEmbedding", 23).number("interleaved", 1).run({x, cosine, sine, position})[0],
                {1, 1, 1, 4}, {-2, 1, -4, 3});
}

TEST(RotaryEmbedding, LeavesTheRestOfAHead) {
  SingleOp op("RotaryEmbedding", 23);
  op.number("rotary_embedding_dim", 2).number("num_heads", 1);
  expect_floats(op.run({counting({1, 1, 4}), floats({1, 1, 1}, {0}), floats({1, 1, 1}, {1})})[0], {1, 1, 4},
                {-2, 1, 3, 4});
}

}  // namespace
}  // namespace kaon
