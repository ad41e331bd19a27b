#pragma once
// A block of a transformer, written in two ways, and data for it.
#include <string>
#include <vector>

#include "quant/networks_test.h"

namespace kaon {

/// Constants of x [N,5,16] -> norm1 -> q, k, v -> attention -> out -> + x -> norm2 -> gate, up -> down -> + . Some
/// channels of the norms are `outlier` times as large, and what reads them as much smaller.
inline std::vector<Initializer> block_constants(int64_t kv_width, float outlier) {
  const auto longs = [](const char* name, std::vector<int64_t> values) {
    return Initializer{name, Tensor::of<int64_t>({std::ssize(values)}, values), {}, {}};
  };
  const auto is_large = [](size_t channel) { return channel == 3 || channel == 10; };
  const auto gain = [&](const char* name, uint64_t seed) {
    std::vector<float> values = random_values(16, seed, 0.1F);
    for (size_t c = 0; c < values.size(); ++c) values[c] = (1 + values[c]) * (is_large(c) ? outlier : 1);
    return make_constant(name, {16}, values);
  };
  const auto reader = [&](const char* name, int64_t outputs, uint64_t seed) {  // [16, outputs]
    std::vector<float> values = random_values(16 * outputs, seed, 0.3F);
    for (size_t i = 0; i < values.size(); ++i) values[i] /= is_large(i / static_cast<size_t>(outputs)) ? outlier : 1;
    return make_constant(name, {16, outputs}, values);
  };
  return {gain("norm1.weight", 1),
          gain("norm2.weight", 2),
          make_constant("norm1.bias", {16}, std::vector<float>(16)),
          reader("q.weight", 16, 3),
          reader("k.weight", kv_width, 4),
          reader("v.weight", kv_width, 5),
          random_constant("q.bias", {16}, 6),
          random_constant("k.bias", {kv_width}, 7),
          random_constant("v.bias", {kv_width}, 8),
          random_constant("out.weight", {16, 16}, 9),
          reader("gate.weight", 24, 10),
          reader("up.weight", 24, 11),
          random_constant("down.weight", {24, 16}, 12),
          random_constant("down.bias", {16}, 13),
          longs("rows", {-1, 16}),
          longs("tokens", {-1, 5, 16}),
          longs("kv_tokens", {-1, 5, kv_width}),
          longs("heads", {-1, 5, 4, 4}),
          make_constant("half", {}, {0.5F})};
}

inline Model with_open_batch(Model model) {
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  for (Node& node : model.graph.nodes) node.name = "/" + node.name + "/" + node.op;
  return model;
}

inline Node named(std::string name, Node node) {
  node.name = std::move(name);
  return node;
}

/// With operators of its own for norms and attention, rows instead of tokens, and two key heads for four query heads.
inline Model fused_block(float outlier = 1) {
  const Attribute last{"axis", int64_t{-1}, {}};
  return with_open_batch(make_model(
      {make_node("Reshape", {"x", "rows"}, {"r"}),
       named("norm1", make_node("LayerNormalization", {"r", "norm1.weight", "norm1.bias"}, {"n1"}, {last})),
       named("q", make_node("Gemm", {"n1", "q.weight", "q.bias"}, {"q1"})),
       named("k", make_node("Gemm", {"n1", "k.weight", "k.bias"}, {"k1"})),
       named("v", make_node("Gemm", {"n1", "v.weight", "v.bias"}, {"v1"})),
       make_node("Reshape", {"q1", "tokens"}, {"q2"}),
       make_node("Reshape", {"k1", "kv_tokens"}, {"k2"}),
       make_node("Reshape", {"v1", "kv_tokens"}, {"v2"}),
       make_node("Attention", {"q2", "k2", "v2"}, {"a"},
                 {{"q_num_heads", int64_t{4}, {}}, {"kv_num_heads", int64_t{2}, {}}, {"is_causal", int64_t{1}, {}}}),
       make_node("Reshape", {"a", "rows"}, {"a2"}),
       named("out", make_node("Gemm", {"a2", "out.weight"}, {"o"})),
       make_node("Add", {"o", "r"}, {"m"}),
       named("norm2", make_node("RMSNormalization", {"m", "norm2.weight"}, {"n2"}, {last})),
       named("gate", make_node("Gemm", {"n2", "gate.weight"}, {"g"})),
       named("up", make_node("Gemm", {"n2", "up.weight"}, {"u"})),
       make_node("Sigmoid", {"g"}, {"s"}),
       make_node("Mul", {"g", "s"}, {"silu"}),
       make_node("Mul", {"silu", "u"}, {"h"}),
       named("down", make_node("Gemm", {"h", "down.weight", "down.bias"}, {"d"})),
       make_node("Add", {"d", "m"}, {"y"})},
      block_constants(8, outlier), {make_value("x", {0, 5, 16})}, {"y"}, 23));
}

/// With norms and attention in small steps, and every bias added by a node of its own.
inline Model exported_block(float outlier = 1) {
  const Attribute perm{"perm", std::vector<int64_t>{0, 2, 1, 3}, {}};
  const Attribute turned{"perm", std::vector<int64_t>{0, 2, 3, 1}, {}};
  const Attribute last{"axes", std::vector<int64_t>{-1}, {}};
  std::vector<Node> nodes = {make_node("ReduceMean", {"x"}, {"mean"}, {last}),
                             make_node("Sub", {"x", "mean"}, {"c"}),
                             make_node("Mul", {"c", "c"}, {"cc"}),
                             make_node("ReduceMean", {"cc"}, {"variance"}, {last}),
                             make_node("Sqrt", {"variance"}, {"deviation"}),
                             make_node("Div", {"c", "deviation"}, {"normed"}),
                             named("norm1", make_node("Mul", {"normed", "norm1.weight"}, {"scaled"})),
                             make_node("Add", {"scaled", "norm1.bias"}, {"n1"})};
  for (const char* part : {"q", "k", "v"}) {
    const std::string name = part;
    nodes.push_back(named(name, make_node("MatMul", {"n1", name + ".weight"}, {name + "0"})));
    nodes.push_back(make_node("Add", {name + ".bias", name + "0"}, {name + "1"}));
    nodes.push_back(make_node("Reshape", {name + "1", "heads"}, {name + "2"}));
    nodes.push_back(make_node("Transpose", {name + "2"}, {name + "3"}, {name == "k" ? turned : perm}));
  }
  const std::vector<Node> rest = {make_node("MatMul", {"q3", "k3"}, {"scores"}),
                                  make_node("Mul", {"scores", "half"}, {"halved"}),
                                  make_node("Softmax", {"halved"}, {"p"}, {{"axis", int64_t{-1}, {}}}),
                                  make_node("MatMul", {"p", "v3"}, {"a"}),
                                  make_node("Transpose", {"a"}, {"a2"}, {perm}),
                                  make_node("Reshape", {"a2", "tokens"}, {"a3"}),
                                  named("out", make_node("MatMul", {"a3", "out.weight"}, {"o"})),
                                  make_node("Add", {"x", "o"}, {"m"}),
                                  make_node("Mul", {"m", "m"}, {"mm"}),
                                  make_node("ReduceMean", {"mm"}, {"power"}, {last}),
                                  make_node("Sqrt", {"power"}, {"size"}),
                                  make_node("Div", {"m", "size"}, {"m2"}),
                                  named("norm2", make_node("Mul", {"norm2.weight", "m2"}, {"n2"})),
                                  named("gate", make_node("MatMul", {"n2", "gate.weight"}, {"g"})),
                                  named("up", make_node("MatMul", {"n2", "up.weight"}, {"u"})),
                                  make_node("Sigmoid", {"g"}, {"s"}),
                                  make_node("Mul", {"g", "s"}, {"silu"}),
                                  make_node("Mul", {"silu", "u"}, {"h"}),
                                  named("down", make_node("MatMul", {"h", "down.weight"}, {"d0"})),
                                  make_node("Add", {"d0", "down.bias"}, {"d"}),
                                  make_node("Add", {"m", "d"}, {"y"})};
  nodes.insert(nodes.end(), rest.begin(), rest.end());
  return with_open_batch(
      make_model(std::move(nodes), block_constants(16, outlier), {make_value("x", {0, 5, 16})}, {"y"}));
}

inline MemoryDataset transformer_data(int64_t samples = 24) {
  return {{samples, 5, 16}, random_values(samples * 5 * 16, 70)};
}

}  // namespace kaon
