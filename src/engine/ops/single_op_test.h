#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"

namespace kaon {

/// One node with its attributes, run on constants.
class SingleOp {
 public:
  SingleOp(std::string op, int64_t opset, const std::string& domain = "") {
    node_.op = std::move(op);
    node_.domain = domain;
    model_.opsets[domain] = 1;
    model_.opsets[""] = opset;
  }

  SingleOp& set(std::string attribute, AttributeValue value) {
    node_.set(std::move(attribute), std::move(value));
    return *this;
  }
  SingleOp& ints(std::string attribute, std::vector<int64_t> values) {
    return set(std::move(attribute), AttributeValue(std::move(values)));
  }
  SingleOp& text(std::string attribute, std::string value) {
    return set(std::move(attribute), AttributeValue(std::move(value)));
  }
  SingleOp& number(std::string attribute, int64_t value) { return set(std::move(attribute), AttributeValue(value)); }
  SingleOp& real(std::string attribute, float value) { return set(std::move(attribute), AttributeValue(value)); }

  /// An undefined tensor is an input that is left out.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, size_t outputs = 1) {
    node_.inputs.clear();
    node_.outputs.clear();
    for (size_t i = 0; i < inputs.size(); ++i) {
      node_.inputs.push_back(inputs[i].defined() ? fmt::format("in{}", i) : "");
    }
    for (size_t i = 0; i < outputs; ++i) node_.outputs.push_back(fmt::format("out{}", i));
    return evaluate_node(node_, model_, inputs);
  }

 private:
  Node node_;
  Model model_;
};

inline Tensor floats(Shape shape, const std::vector<float>& values) {
  return Tensor::of<float>(std::move(shape), values);
}
inline Tensor longs(Shape shape, const std::vector<int64_t>& values) {
  return Tensor::of<int64_t>(std::move(shape), values);
}

/// 1, 2, 3 …
inline Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return floats(shape, values);
}

inline void expect_floats(const Tensor& got, const Shape& shape, const std::vector<float>& wanted) {
  ASSERT_EQ(got.shape(), shape);
  const std::span<const float> values = got.as<float>();
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(values[i], wanted[i], 1e-5 * std::max(1.0F, std::abs(wanted[i]))) << "element " << i;
  }
}

inline void expect_longs(const Tensor& got, const Shape& shape, const std::vector<int64_t>& wanted) {
  ASSERT_EQ(got.shape(), shape);
  EXPECT_EQ(got.to_int64(), wanted);
}

}  // namespace kaon
