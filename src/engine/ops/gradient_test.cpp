// Every differentiable kernel against finite differences, in float64.
#include <gtest/gtest.h>

#include "engine/program.h"

namespace kaon {
namespace {

using Attributes = std::vector<std::pair<std::string, AttributeValue>>;
using Ints = std::vector<int64_t>;

struct Case {
  std::string op;
  std::vector<at::Tensor> inputs;  ///< the floating-point ones are differentiated; undefined: left out
  Attributes attributes;
  int64_t opset = 19;
  std::string domain;
};

/// Distinct values far enough apart that no maximum changes hands within a step of the finite difference.
at::Tensor spread(at::IntArrayRef shape) {
  const int64_t count = c10::multiply_integers(shape);
  const at::Tensor order = (at::arange(count, at::kDouble) * 7919).remainder(std::max<int64_t>(count, 2) * 2 + 1);
  return ((order + 0.37) / static_cast<double>(count) - 0.8).reshape(shape);
}

at::Tensor longs(Ints values) { return at::tensor(values, at::kLong); }
at::Tensor reals(std::vector<double> values) { return at::tensor(values, at::kDouble); }

std::vector<Case> cases() {
  const at::Tensor image = spread({1, 2, 4, 5});
  return {
      {"Reshape", {image, longs({0, -1})}, {}},
      {"Transpose", {image}, {{"perm", Ints{2, 0, 3, 1}}}},
      {"Slice", {image, longs({3, 0}), longs({-9, 5}), longs({2, 3}), longs({-2, 2})}, {}},
      {"Concat", {image, spread({1, 1, 4, 5})}, {{"axis", int64_t{1}}}},
      {"Pad", {image, longs({0, 0, 1, -1, 0, 0, 2, 1})}, {{"mode", std::string("reflect")}}},
      {"Tile", {image, longs({1, 2, 1, 1})}, {}},
      {"Col2Im", {spread({1, 4, 6}), longs({3, 4}), longs({2, 2})}, {}},
      {"Gather", {image, longs({1, -1, 1})}, {{"axis", int64_t{3}}}},
      {"GatherND", {image, longs({0, 1, 0, -1}).reshape({2, 2})}, {}},
      {"ScatterND", {image, longs({0, 1}).reshape({1, 2}), spread({1, 4, 5})}, {}},
      {"ScatterElements", {spread({3}), longs({0, 0}), spread({2}) + 3}, {{"reduction", std::string("mul")}}, 18},
      {"Conv", {image, spread({2, 2, 3, 2}), spread({2})}, {{"pads", Ints{0, 1, 2, 0}}, {"strides", Ints{2, 1}}}},
      {"ConvTranspose",
       {image, spread({2, 1, 3, 2}), spread({1})},
       {{"pads", Ints{0, 1, 1, 0}}, {"strides", Ints{2, 1}}}},
      {"DeformConv",
       {spread({1, 2, 3, 3}), spread({1, 2, 2, 2}), spread({1, 8, 2, 2}) / 3, spread({1}), spread({1, 4, 2, 2})},
       {}},
      {"MaxPool", {image}, {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{0, 1, 1, 0}}}},
      {"AveragePool", {image}, {{"kernel_shape", Ints{2, 2}}, {"dilations", Ints{2, 1}}, {"pads", Ints{0, 1, 1, 0}}}},
      {"LpPool", {image + 3}, {{"kernel_shape", Ints{2, 2}}, {"p", int64_t{3}}}},
      {"GlobalMaxPool", {image}, {}},
      {"RoiAlign",
       {image, reals({0, 0, 3, 3}).reshape({1, 4}).to(at::kFloat), longs({0})},
       {{"output_height", int64_t{2}}}},
      {"LRN", {spread({1, 4, 2})}, {{"size", int64_t{3}}, {"alpha", 0.5F}}},
      {"BatchNormalization", {image, spread({2}), spread({2}), spread({2}), spread({2}) + 2}, {}},
      {"BatchNormalization",
       {spread({3, 2}), spread({2}), spread({2}), spread({2}), spread({2}) + 2},
       {{"training_mode", int64_t{1}}}},
      {"InstanceNormalization", {image, spread({2}), spread({2})}, {}},
      {"LayerNormalization", {image, spread({5}), spread({5})}, {}},
      {"GroupNormalization", {image, spread({2}), spread({2})}, {{"num_groups", int64_t{2}}}, 21},
      {"RMSNormalization", {image, spread({5})}, {}, 23},
      {"LpNormalization", {image}, {}},
      {"SkipLayerNormalization", {spread({1, 2, 4}), spread({1, 2, 4}), spread({4})}, {}, 19, "com.microsoft"},
      {"Resize", {image, {}, reals({1, 1, 1.5, 0.7}).to(at::kFloat)}, {{"mode", std::string("cubic")}}},
      {"Resize",
       {image, {}, reals({1, 1, 0.6, 0.7}).to(at::kFloat)},
       {{"mode", std::string("linear")}, {"antialias", int64_t{1}}}},
      {"Resize", {image, {}, reals({1, 1, 2, 2}).to(at::kFloat)}, {}},
      {"GridSample", {image, spread({1, 2, 2, 2})}, {}},
      {"Attention",
       {spread({1, 2, 3, 4}), spread({1, 1, 5, 4}), spread({1, 1, 5, 2}), spread({3, 5})},
       {{"is_causal", int64_t{1}}, {"softcap", 2.0F}},
       23},
      {"RotaryEmbedding", {spread({1, 2, 3, 4}), spread({1, 3, 2}), spread({1, 3, 2})}, {}, 23},
      {"RNN", {spread({3, 2, 2}), spread({1, 3, 2}), spread({1, 3, 3}), spread({1, 6})}, {}},
      {"GRU",
       {spread({3, 2, 2}), spread({1, 9, 2}), spread({1, 9, 3}), spread({1, 18}), longs({3, 2})},
       {{"linear_before_reset", int64_t{1}}}},
      {"LSTM",
       {spread({3, 2, 2}), spread({2, 12, 2}), spread({2, 12, 3}), spread({2, 24}), longs({3, 2}), spread({2, 2, 3}),
        spread({2, 2, 3}), spread({2, 9})},
       {{"direction", std::string("bidirectional")}}},
  };
}

/// A number that depends on every element of the first output, each in its own measure.
at::Tensor run(const Kernel& kernel, const std::vector<at::Tensor>& inputs) {
  std::vector<Value> values(inputs.size());
  std::vector<const Value*> pointers(inputs.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    values[i] = {inputs[i], natural_type(inputs[i].scalar_type())};
    pointers[i] = &values[i];
  }
  std::vector<Value> outputs(1);
  Call call(pointers, outputs);
  kernel(call);
  const at::Tensor& y = outputs[0].tensor;
  return (y * (at::arange(y.numel(), at::kDouble) * 0.7 + 1).sin().reshape(y.sizes())).sum();
}

void check(const Case& test) {
  Node node;
  node.op = test.op;
  node.domain = test.domain;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    node.inputs.push_back(test.inputs[i].defined() ? "in" + std::to_string(i) : "");
  }
  node.outputs = {"out"};
  for (const auto& [name, value] : test.attributes) node.set(name, value);
  const auto model = std::make_shared<Model>();
  std::vector<std::string> unsupported;
  ProgramBuilder builder(model, model->graph, unsupported);
  const KernelMaker* maker = operators().find(test.domain, test.op);
  ASSERT_NE(maker, nullptr);
  const Kernel kernel = (*maker)(OpInfo(node, test.opset, builder));

  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : test.inputs) {
    const bool differentiate = input.defined() && input.scalar_type() == at::kDouble;
    inputs.push_back(differentiate ? input.clone().requires_grad_() : input);
  }
  run(kernel, inputs).backward();
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    // A running mean is no part of the first output.
    const at::Tensor gradient = inputs[i].grad().defined() ? inputs[i].grad() : at::zeros_like(inputs[i]);
    for (int64_t e = 0; e < inputs[i].numel(); ++e) {
      std::vector<at::Tensor> moved = test.inputs;
      const auto at_offset = [&](double offset) {
        moved[i] = test.inputs[i].clone();
        moved[i].view(-1)[e] += offset;
        return run(kernel, moved).item<double>();
      };
      const double wanted = (at_offset(kStep) - at_offset(-kStep)) / (2 * kStep);
      EXPECT_NEAR(gradient.view(-1)[e].item<double>(), wanted, 1e-5 * std::max(1.0, std::abs(wanted)))
          << "input " << i << " element " << e;
    }
  }
}

TEST(Gradient, EqualsFiniteDifferences) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.op);
    check(test);
  }
}

}  // namespace
}  // namespace kaon
