#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Activation, SlopesOfPReluBelongToChannelsBeforeOpset7) {
  const Tensor x = floats({1, 2, 2}, {-1, -2, -3, 4});
  expect_floats(SingleOp("PRelu", 6).run({x, floats({2}, {2, 10})})[0], {1, 2, 2}, {-2, -4, -30, 4});
}

TEST(Activation, SoftmaxSawAMatrixBeforeOpset13) {
  const Tensor x = floats({1, 2, 2}, {0, 0, 0, 0});
  expect_floats(SingleOp("Softmax", 11).run({x})[0], {1, 2, 2}, {0.25F, 0.25F, 0.25F, 0.25F});
  expect_floats(SingleOp("Softmax", 13).run({x})[0], {1, 2, 2}, {0.5F, 0.5F, 0.5F, 0.5F});
}

TEST(Activation, GelusOfMicrosoftTakeABias) {
  const Tensor x = floats({2}, {0, -1});
  expect_floats(SingleOp("BiasGelu", 1, "com.microsoft").run({x, floats({2}, {1, 1})})[0], {2}, {0.8413447F, 0});
  expect_floats(SingleOp("FastGelu", 1, "com.microsoft").run({x})[0], {2}, {0, -0.1588080F});
  expect_floats(SingleOp("QuickGelu", 1, "com.microsoft").run({x})[0], {2}, {0, -0.1542042F});
}

}  // namespace
}  // namespace kaon
