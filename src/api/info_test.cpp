#include "api/info.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/build_test.h"
#include "io/files_test.h"
#include "io/onnx/onnx.h"

namespace kaon {
namespace {

Model small_model() {
  ValueInfo x = make_value("x", {0, 4});
  x.shape->at(0) = {std::nullopt, "batch"};
  Node constant = make_node("Constant", {}, {"c"}, {{"value", Tensor::of<float>({3}, {1, 2, 3}), {}}});
  Model model = make_model({constant, make_node("MatMul", {"x", "fc.weight"}, {"a"}),
                            make_node("Add", {"a", "c"}, {"y"}), make_node("Relu", {"y"}, {"r"})},
                           {make_counting("fc.weight", {4, 3})}, {x}, {"y"});
  return model;
}

TEST(InspectModel, SaysWhatItHolds) {
  const TemporaryFolder folder;
  write_onnx(small_model(), folder / "m.onnx");
  const auto json = to_json(inspect_model(folder / "m.onnx"));
  EXPECT_EQ(json, nlohmann::ordered_json::parse(R"({"format": "onnx", "opset": 17,
    "inputs": [{"name": "x", "type": "float32", "shape": ["batch", 4]}],
    "outputs": [{"name": "y", "type": null, "shape": null}],
    "parameters": 15, "bytes": )" + std::to_string(std::filesystem::file_size(folder / "m.onnx")) +
                                                R"(,
    "ops": {"Add": 1, "Constant": 1, "MatMul": 1, "Relu": 1},
    "layers": [{"name": "fc", "tensor": "fc.weight", "op": "MatMul", "weight_shape": [4, 3],
                "slots": ["input", "weight", "bias", "output"]}],
    "unsupported": []})"));
}

TEST(InspectModel, CountsExternalData) {
  const TemporaryFolder folder;
  write_onnx(small_model(), folder / "m.onnx", 1);
  ASSERT_TRUE(std::filesystem::exists(folder / "m.onnx.data"));
  EXPECT_EQ(inspect_model(folder / "m.onnx").bytes,
            static_cast<int64_t>(std::filesystem::file_size(folder / "m.onnx") +
                                 std::filesystem::file_size(folder / "m.onnx.data")));
}

TEST(InspectModel, ListsWhatCannotRun) {
  const TemporaryFolder folder;
  Model model = make_model(
      {make_node("Relu", {"x"}, {"a"}), make_node("Frobnicate", {"a"}, {"b"}), make_node("Frobnicate", {"b"}, {"y"})},
      {}, {make_value("x", {4})}, {"y"});
  model.graph.nodes[1].domain = model.graph.nodes[2].domain = "com.example";
  model.opsets["com.example"] = 1;
  write_onnx(model, folder / "m.onnx");
  const ModelInfo info = inspect_model(folder / "m.onnx");
  EXPECT_EQ(info.ops, (std::map<std::string, int64_t>{{"Relu", 1}, {"com.example.Frobnicate", 2}}));
  EXPECT_EQ(info.unsupported.size(), 2u);
}

}  // namespace
}  // namespace kaon
