#include "transformer.h"

#include <fmt/core.h>

#include <cmath>
#include <random>

namespace kaon::bench {

namespace {

class Builder {
 public:
  Builder(int64_t width, int64_t heads, int64_t tokens) : width_(width), heads_(heads), tokens_(tokens) {
    model_.opsets[""] = 17;
    model_.graph.name = "transformer";
    model_.graph.inputs = {{.name = "x", .type = DType::Float32}};
    model_.graph.inputs[0].shape = {{{}, "batch"}, {tokens, {}}, {width, {}}};
    split_ = ints({0, tokens, heads, width / heads});
    merge_ = ints({0, tokens, width});
  }

  std::string layer(std::string x) {
    const std::string a = norm(x);
    const std::vector<int64_t> swap{0, 2, 1, 3}, transpose{0, 2, 3, 1};
    const std::string q = turned(linear(a, width_, width_), swap);
    const std::string k = turned(linear(a, width_, width_), transpose);
    const std::string v = turned(linear(a, width_, width_), swap);
    const float scale = 1 / std::sqrt(static_cast<float>(width_ / heads_));
    const std::string scores = op("Mul", {op("MatMul", {q, k}), constant(Tensor::scalar(scale))});
    const std::string mixed = op("MatMul", {op("Softmax", {scores}, {{"axis", int64_t{-1}, {}}}), v});
    const std::string joined = op("Reshape", {op("Transpose", {mixed}, {{"perm", swap, {}}}), merge_});
    x = op("Add", {x, linear(joined, width_, width_)});
    const std::string wide = op("Relu", {linear(norm(x), width_, 4 * width_)});
    return op("Add", {x, linear(wide, 4 * width_, width_)});
  }

  Model finish(const std::string& x) {
    model_.graph.outputs = {{.name = norm(x)}};
    return std::move(model_);
  }

 private:
  std::string constant(Tensor tensor) {
    model_.graph.initializers.push_back(
        {fmt::format("c{}", model_.graph.initializers.size()), std::move(tensor), {}, {}});
    return model_.graph.initializers.back().name;
  }
  std::string ints(const std::vector<int64_t>& values) {
    return constant(Tensor::of<int64_t>({std::ssize(values)}, values));
  }
  std::string random(Shape shape, float spread, float centre = 0) {
    std::uniform_real_distribution<float> uniform(centre - spread, centre + spread);
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& value : values) value = uniform(generator_);
    return constant(Tensor::of(std::move(shape), values));
  }
  std::string op(std::string kind, std::vector<std::string> inputs, std::vector<Attribute> attributes = {}) {
    Node node;
    node.op = std::move(kind);
    node.inputs = std::move(inputs);
    node.outputs = {fmt::format("v{}", model_.graph.nodes.size())};
    node.attributes = std::move(attributes);
    model_.graph.nodes.push_back(std::move(node));
    return model_.graph.nodes.back().outputs[0];
  }
  std::string linear(const std::string& x, int64_t in, int64_t out) {
    const float spread = std::sqrt(3 / static_cast<float>(in));
    return op("Add", {op("MatMul", {x, random({in, out}, spread)}), random({out}, 0.1F)});
  }
  std::string norm(const std::string& x) {
    return op("LayerNormalization", {x, random({width_}, 0.2F, 1), random({width_}, 0.1F)},
              {{"axis", int64_t{-1}, {}}});
  }
  std::string turned(const std::string& x, const std::vector<int64_t>& order) {
    return op("Transpose", {op("Reshape", {x, split_})}, {{"perm", order, {}}});
  }

  Model model_;
  int64_t width_, heads_, tokens_;
  std::string split_, merge_;
  std::mt19937 generator_{3};
};

}  // namespace

Model make_transformer(int64_t layers, int64_t width, int64_t heads, int64_t tokens) {
  Builder builder(width, heads, tokens);
  std::string x = "x";
  for (int64_t i = 0; i < layers; ++i) x = builder.layer(x);
  return builder.finish(x);
}

}  // namespace kaon::bench
