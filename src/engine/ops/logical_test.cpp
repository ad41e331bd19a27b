#include <array>

#include "engine/engine.h"
#include "engine/ops/single_op_test.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

TEST(Where, AnInputTooManyHasNoSayInTheShape) {
  // Planned from shapes alone, then run: both must come to [2, 3].
  const Model model = make_model({make_node("Where", {"c", "x", "y", "more"}, {"z"})}, {},
                                 {make_value("c", {2, 1}, DType::Bool), make_value("x", {3}), make_value("y", {1, 3}),
                                  make_value("more", {5, 2, 3})},
                                 {"z"});
  Engine engine(model);
  const std::array condition{true, false};
  const TensorMap inputs{{"c", Tensor::of<bool>({2, 1}, condition)},
                         {"x", floats({3}, {1, 2, 3})},
                         {"y", floats({1, 3}, {4, 5, 6})},
                         {"more", counting({5, 2, 3})}};
  for (int i = 0; i < 3; ++i) expect_floats(engine.run(inputs)[0], {2, 3}, {1, 2, 3, 4, 5, 6});
}

}  // namespace
}  // namespace kaon
