#pragma once
// Shorthand for the small graphs of the tests.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"

namespace kaon {

inline Node make_node(std::string op, std::vector<std::string> inputs, std::vector<std::string> outputs,
                      std::vector<Attribute> attributes = {}) {
  Node node;
  node.op = std::move(op);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.attributes = std::move(attributes);
  return node;
}

inline ValueInfo make_value(std::string name, std::vector<int64_t> shape = {}, DType type = DType::Float32) {
  ValueInfo info;
  info.name = std::move(name);
  info.type = type;
  info.shape.emplace();
  for (const int64_t dim : shape) info.shape->push_back({dim, {}});
  return info;
}

inline Initializer make_constant(std::string name, Shape shape, std::vector<float> values) {
  return {std::move(name), Tensor::of(std::move(shape), values), {}, {}};
}

/// An initializer that counts 1, 2, 3 …
inline Initializer make_counting(std::string name, Shape shape) {
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return make_constant(std::move(name), std::move(shape), std::move(values));
}

inline Model make_model(std::vector<Node> nodes, std::vector<Initializer> initializers, std::vector<ValueInfo> inputs,
                        std::vector<std::string> outputs, int64_t opset = 17) {
  Model model;
  model.opsets[""] = opset;
  model.graph.name.push_back('g');  // GCC 12 takes an assignment for one of 2^63 bytes
  model.graph.nodes = std::move(nodes);
  model.graph.initializers = std::move(initializers);
  model.graph.inputs = std::move(inputs);
  for (std::string& output : outputs) {
    model.graph.outputs.emplace_back();
    model.graph.outputs.back().name = std::move(output);
  }
  return model;
}

/// The message of the error that `action` throws; fails when there is none or its code is another.
template <typename Action>
std::string error_of(ErrorCode code, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace kaon
