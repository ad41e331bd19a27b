#include <random>

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

/// A clip that clips nothing takes the way of single tensor operations.
TEST(Rnn, TheQuickWayIsTheSlowOne) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.7F);
  const auto numbers = [&](Shape shape) {
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& value : values) value = normal(random);
    return Tensor::of(std::move(shape), values);
  };
  for (const char* kind : {"LSTM", "GRU"}) {
    const int64_t gates = std::string_view(kind) == "GRU" ? 3 : 4;
    for (const int64_t linear : {0, 1}) {
      for (const int64_t batch : {1, 3}) {
        for (const int64_t hidden : {1, 16, 37}) {
          SCOPED_TRACE(fmt::format("{} linear {} batch {} hidden {}", kind, linear, batch, hidden));
          const auto op = [&] {
            SingleOp made(kind, 14);
            made.number("hidden_size", hidden).text("direction", "bidirectional");
            if (gates == 3) made.number("linear_before_reset", linear);
            return made;
          };
          std::vector<Tensor> inputs{numbers({5, batch, 9}), numbers({2, gates * hidden, 9}),
                                     numbers({2, gates * hidden, hidden}), numbers({2, 2 * gates * hidden})};
          const size_t outputs = gates == 3 ? 2 : 3;
          for (const bool with_state : {false, true}) {
            if (with_state) {
              inputs.resize(5);
              inputs.push_back(numbers({2, batch, hidden}));
              if (gates == 4) inputs.push_back(numbers({2, batch, hidden}));
            }
            const std::vector<Tensor> quick = op().run(inputs, outputs);
            const std::vector<Tensor> slow = op().real("clip", 1000).run(inputs, outputs);
            for (size_t i = 0; i < outputs; ++i) {
              ASSERT_EQ(quick[i].shape(), slow[i].shape());
              const std::vector<float> a = quick[i].to_float();
              const std::vector<float> b = slow[i].to_float();
              for (size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], 2e-6F) << "output " << i;
            }
          }
        }
      }
    }
  }
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
