#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Rnn, GruLinearBeforeReset) {
  SingleOp op("GRU", 14);
  op.number("hidden_size", 1).number("linear_before_reset", 1);
  const std::vector<Tensor> y =
      op.run({floats({2, 1, 1}, {1, -1}), floats({1, 3, 1}, {0.5F, -0.5F, 1}), floats({1, 3, 1}, {1, 0.5F, -1}),
              floats({1, 6}, {0, 0.1F, 0.2F, 0.3F, 0.4F, 0.5F})},
             2);
  expect_floats(y[0], {2, 1, 1, 1}, {0.277688F, -0.12449F});
  expect_floats(y[1], {1, 1, 1}, {-0.12449F});
}

TEST(Rnn, ReverseLstmWithPeepholesStopsAtEachLength) {
  SingleOp op("LSTM", 14);
  op.number("hidden_size", 1).text("direction", "reverse");
  const Tensor lengths = Tensor::of<int32_t>({2}, std::vector<int32_t>{2, 1});
  const std::vector<Tensor> y = op.run({floats({2, 2, 1}, {1, -1, 2, 0.5F}),
                                        floats({1, 4, 1}, {0.5F, -0.5F, 1, 0.2F}),
                                        floats({1, 4, 1}, {1, 0.5F, -1, 0.3F}),
                                        {},
                                        lengths,
                                        {},
                                        {},
                                        floats({1, 3}, {0.1F, 0.2F, 0.3F})},
                                       3);
  expect_floats(y[0], {2, 1, 2, 1}, {0.133814F, -0.0460373F, 0.0758347F, 0});
  expect_floats(y[1], {1, 2, 1}, {0.133814F, -0.0460373F});
  expect_floats(y[2], {1, 2, 1}, {0.34514F, -0.0745172F});
}

TEST(Rnn, WrongShapesAndNamesFail) {
  SingleOp op("RNN", 14);
  EXPECT_THROW(op.run({counting({1, 1, 2}), counting({1, 3, 3}), counting({1, 3, 3})}), Error);
  EXPECT_THROW(op.text("direction", "sideways").run({counting({1, 1, 2}), counting({1, 3, 2}), counting({1, 3, 3})}),
               Error);
  SingleOp activation("RNN", 14);
  activation.set("activations", std::vector<std::string>{"Swish"});
  EXPECT_THROW(activation.run({counting({1, 1, 2}), counting({1, 3, 2}), counting({1, 3, 3})}), Error);
}

}  // namespace
}  // namespace kaon
