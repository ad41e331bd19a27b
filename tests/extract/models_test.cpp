// Real models run whole and in two parts, cut at many places: the parts must give the same bits.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "engine/engine.h"
#include "graph/extract.h"
#include "graph/pass.h"
#include "io/onnx/onnx.h"

namespace kaon {
namespace {

const std::filesystem::path kModels = KAON_SOURCE_DIR "/../shared/models";

/// The values that nodes before `cut` make, or the model is given, and nodes from `cut` on or the outputs read.
std::vector<std::string> alive_at(const Graph& graph, int64_t cut) {
  std::set<std::string> made;
  for (const ValueInfo& input : graph.required_inputs()) made.insert(input.name);
  for (int64_t i = 0; i < cut; ++i) made.insert(graph.nodes[i].outputs.begin(), graph.nodes[i].outputs.end());
  std::set<std::string> alive;
  const auto reads = [&](const std::string& value) {
    if (!value.empty() && made.contains(value)) alive.insert(value);
  };
  for (int64_t i = cut; i < std::ssize(graph.nodes); ++i) {
    for (const std::string& input : graph.nodes[i].inputs) reads(input);
  }
  for (const ValueInfo& output : graph.outputs) reads(output.name);
  return {alive.begin(), alive.end()};
}

std::vector<Tensor> interpreted(const Model& model, const TensorMap& inputs) {
  const Engine engine(model);
  Frame frame = engine.start(inputs);
  frame.finish();
  return frame.outputs();
}

void expect_same_in_parts(const std::string& file, const std::string& input, const Tensor& value, int64_t cuts) {
  if (!std::filesystem::exists(kModels / file)) {
    std::printf("not run: ../shared/models is not beside the checkout\n");
    return;
  }
  Model model = read_onnx(kModels / file);
  run_passes(model, {evaluate_node});
  const std::vector<Tensor> whole = interpreted(model, {{input, value}});
  const int64_t count = std::ssize(model.graph.nodes);
  for (int64_t i = 1; i <= cuts; ++i) {
    const int64_t cut = i * count / (cuts + 1);
    const std::vector<std::string> alive = alive_at(model.graph, cut);
    std::vector<std::string> made = alive;
    std::erase(made, input);
    std::vector<std::string> last;
    for (const ValueInfo& output : model.graph.outputs) last.push_back(output.name);

    const Model head = extract(model, {input}, made);
    const Model tail = extract(model, alive, last);
    EXPECT_EQ(head.graph.nodes.size() + tail.graph.nodes.size(), model.graph.nodes.size()) << file << " at " << cut;
    const std::vector<Tensor> values = interpreted(head, {{input, value}});
    TensorMap between;
    for (size_t k = 0; k < made.size(); ++k) between[made[k]] = values[k];
    if (made.size() != alive.size()) between[input] = value;
    const std::vector<Tensor> parts = interpreted(tail, between);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t k = 0; k < whole.size(); ++k) {
      EXPECT_TRUE(std::ranges::equal(parts[k].bytes(), whole[k].bytes())) << file << " at " << cut << ", output " << k;
    }
    // The planned engine fuses differently around the cut.
    const std::vector<float> planned = Engine(tail).run(between)[0].to_float();
    const std::vector<float> exact = whole[0].to_float();
    for (size_t k = 0; k < exact.size(); ++k) ASSERT_NEAR(planned[k], exact[k], 1e-4 * (1 + std::abs(exact[k])));
  }
}

Tensor ramp(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  return Tensor::of(shape, values);
}

TEST(ExtractModels, ResidualNetwork) {
  expect_same_in_parts("resnet20_cifar10_fp32.onnx", "input", ramp({2, 3, 32, 32}), 12);
}

TEST(ExtractModels, LanguageModel) {
  std::vector<int64_t> ids(20);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 29 % 500);
  expect_same_in_parts("stories260K/model.onnx", "input_ids", Tensor::of({2, 10}, ids), 12);
}

}  // namespace
}  // namespace kaon
