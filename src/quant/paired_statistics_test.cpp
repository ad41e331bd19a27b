#include "quant/paired_statistics.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "quant/networks_test.h"

namespace kaon {
namespace {

Model with_outputs(Model model, const std::vector<std::string>& values) {
  model.graph.outputs.clear();
  for (const std::string& value : values) {
    model.graph.outputs.emplace_back();
    model.graph.outputs.back().name = value;
  }
  return model;
}

std::vector<std::string> names_of(const TensorMap& values) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : values) names.push_back(name);
  return names;
}

/// Values that are kept on the way are those of the whole network.
TEST(NetworkWalk, KeepsWhatNodesToComeRead) {
  const Model model = residual_network();
  const MemoryDataset data = residual_data(7);
  NetworkWalk walk(data, 3);
  EXPECT_EQ(names_of(walk.kept(0)), std::vector<std::string>{"x"});
  const std::vector<std::pair<int64_t, std::vector<std::string>>> steps = {
      {0, {"x"}}, {2, {"r1"}}, {3, {"c2", "r1"}}, {3, {"c2", "r1"}}, {7, {"flat"}}};
  for (const auto& [position, alive] : steps) {
    walk.go_to(model, position);
    for (int64_t first = 0; first < 7; first += 3) {
      const TensorMap kept = walk.kept(first);
      ASSERT_EQ(names_of(kept), alive) << position;
      if (position == 0) continue;
      Engine whole(with_outputs(model, alive));
      const std::vector<Tensor> wanted = whole.run(data.read(first, std::min<int64_t>(3, 7 - first)).inputs);
      for (size_t i = 0; i < alive.size(); ++i) {
        const std::vector<float> a = kept.at(alive[i]).to_float(), b = wanted[i].to_float();
        ASSERT_EQ(a.size(), b.size());
        for (size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], 1e-4F) << alive[i];
      }
    }
  }
}

/// Two values of 16 · 6 · 6 floats for each sample are too many, the 16 that are left behind the pooling are not.
TEST(NetworkWalk, KeepsNoMoreThanItMay) {
  const Model model = residual_network();
  const MemoryDataset data = residual_data(6);
  NetworkWalk walk(data, 3, 6 * 16 * 36 * sizeof(float));
  walk.go_to(model, 2);
  EXPECT_EQ(names_of(walk.kept(3)), std::vector<std::string>{"r1"});
  walk.go_to(model, 3);
  EXPECT_EQ(names_of(walk.kept(3)), std::vector<std::string>{"r1"}) << "one value is kept instead of two";
  walk.go_to(model, 7);
  EXPECT_EQ(names_of(walk.kept(3)), std::vector<std::string>{"flat"});
}

}  // namespace
}  // namespace kaon
