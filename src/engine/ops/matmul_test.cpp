#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Gemm, WhatIsAddedFitsTheProduct) {
  SingleOp op("Gemm", 13);
  const Tensor a = counting({2, 3}), b = counting({3, 4});
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{4}, Shape{2, 1}, Shape{1, 4}, Shape{2, 4}}) {
    EXPECT_EQ(op.run({a, b, counting(shape)})[0].shape(), (Shape{2, 4})) << to_string(shape);
  }
  for (const Shape& shape : {Shape{2}, Shape{1, 1, 4}, Shape{3, 4}, Shape{4, 2}}) {
    EXPECT_THROW(op.run({a, b, counting(shape)}), Error) << to_string(shape);
  }
}

}  // namespace
}  // namespace kaon
