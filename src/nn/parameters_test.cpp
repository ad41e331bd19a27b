#include "nn/parameters.h"

#include <gtest/gtest.h>

#include "graph/build_test.h"
#include "io/files_test.h"
#include "io/safetensors/safetensors.h"
#include "nn/models.h"

namespace kaon::nn {
namespace {

TEST(Parameters, AreLoadedAsTheyWereSaved) {
  const TemporaryFolder folder;
  const Model saved = cnn(1);
  save_parameters(saved, folder / "p");
  Model other = cnn(2);
  load_parameters(other, folder / "p");
  for (const Initializer& initializer : saved.graph.initializers) {
    EXPECT_EQ(other.graph.find_initializer(initializer.name)->tensor.to_float(), initializer.tensor.to_float());
  }
}

TEST(Parameters, ThatDoNotFitAreRefusedAndChangeNothing) {
  const TemporaryFolder folder;
  Model model = mlp(0);
  const Model before = model;
  const auto refused = [&](const std::function<void(NamedTensors&)>& change, const std::string& part) {
    save_parameters(mlp(1), folder / "p");
    NamedTensors tensors = read_safetensors(folder / "p");
    change(tensors);
    write_safetensors(tensors, folder / "changed");
    const std::string message = error_of(ErrorCode::InvalidInput, [&] { load_parameters(model, folder / "changed"); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    for (const Initializer& initializer : before.graph.initializers) {
      EXPECT_EQ(model.graph.find_initializer(initializer.name)->tensor.bytes().data(),
                initializer.tensor.bytes().data());
    }
  };
  const auto named = [](NamedTensors& tensors, const std::string& name) {
    return std::ranges::find(tensors, name, [](const auto& item) { return item.first; });
  };
  refused([&](NamedTensors& tensors) { tensors.erase(named(tensors, "fc3.bias")); }, "'fc3.bias' is missing");
  refused([&](NamedTensors& tensors) { tensors.emplace_back("fc9", Tensor::scalar(1.0F)); },
          "'fc9' is not in the model");
  refused([&](NamedTensors& tensors) { named(tensors, "fc3.bias")->second = Tensor::scalar(1.0F); },
          "'fc3.bias' is float32 [], in the model float32 [10]");
}

}  // namespace
}  // namespace kaon::nn
