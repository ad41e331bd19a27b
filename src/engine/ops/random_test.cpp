#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

std::vector<float> draw(const std::string& op, float seed) {
  SingleOp single(op, 22);
  return single.ints("shape", {4096}).real("seed", seed).run({})[0].to_float();
}

TEST(Random, SeedFixesTheNumbers) {
  EXPECT_EQ(draw("RandomNormal", 3), draw("RandomNormal", 3));
  EXPECT_NE(draw("RandomNormal", 3), draw("RandomNormal", 4));
}

TEST(Random, UniformNumbersFillTheirRange) {
  const std::vector<float> numbers = draw("RandomUniform", 1);
  double sum = 0;
  for (const float number : numbers) {
    ASSERT_GE(number, 0);
    ASSERT_LE(number, 1);
    sum += number;
  }
  EXPECT_NEAR(sum / static_cast<double>(numbers.size()), 0.5, 0.02);
}

TEST(Random, BernoulliAndMultinomialKeepToCertainties) {
  expect_floats(SingleOp("Bernoulli", 15).run({floats({4}, {0, 1, 0, 1})})[0], {4}, {0, 1, 0, 1});
  const Tensor logits = floats({1, 3}, {-1e30F, 0, -1e30F});
  expect_longs(SingleOp("Multinomial", 7).number("sample_size", 2).run({logits})[0], {1, 2}, {1, 1});
}

}  // namespace
}  // namespace kaon
