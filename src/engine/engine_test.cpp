#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/build_test.h"

namespace kaon {
namespace {

Tensor ramp(Shape shape, float start, float step) {
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = start + step * static_cast<float>(i);
  return Tensor::of(std::move(shape), values);
}

/// a = x + 1; b = a · 2; c = a · b
Model chain() {
  return make_model({make_node("Add", {"x", "one"}, {"a"}), make_node("Mul", {"a", "two"}, {"b"}),
                     make_node("Mul", {"a", "b"}, {"c"})},
                    {make_constant("one", {}, {1}), make_constant("two", {}, {2})}, {make_value("x", {3})}, {"c"});
}

std::vector<float> numbers(const Tensor& tensor) { return tensor.to_float(); }

TEST(Engine, ListsEveryUnsupportedNode) {
  Model model = make_model(
      {make_node("Frobnicate", {"x"}, {"a"}), make_node("Relu", {"a"}, {"b"}), make_node("Twiddle", {"b"}, {"c"})}, {},
      {make_value("x", {1})}, {"c"});
  const std::string message = error_of(ErrorCode::Unsupported, [&] { const Engine engine(model); });
  EXPECT_NE(message.find("Frobnicate 'a'"), std::string::npos) << message;
  EXPECT_NE(message.find("Twiddle 'c'"), std::string::npos) << message;
  EXPECT_EQ(message.find("Relu"), std::string::npos) << message;
  EXPECT_EQ(unsupported_nodes(model).size(), 2U);
}

TEST(Engine, ChecksInputs) {
  Engine engine(chain());
  EXPECT_EQ(numbers(engine.run({{"x", ramp({3}, 0, 1)}})[0]), (std::vector<float>{2, 8, 18}));
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { engine.run({}); }).find("float32 [3]"), std::string::npos);
  EXPECT_NE(error_of(ErrorCode::InvalidInput,
                     [&] {
                       engine.run({{"x", ramp({4}, 0, 1)}});
                     })
                .find("[4]"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::InvalidInput,
                     [&] {
                       engine.run({{"x", ramp({3}, 0, 1)}, {"y", ramp({3}, 0, 1)}});
                     })
                .find("no such input"),
            std::string::npos);
}

TEST(Engine, WhatRunsOnceGivesTheSame) {
  // Whole numbers, so that the order of a sum does not show.
  const Model model = make_model({make_node("MatMul", {"x", "w"}, {"y"})}, {make_counting("w", {64, 48})},
                                 {make_value("x", {1, -1, 64})}, {"y"});
  for (const int64_t length : {1, 2, 8, 9, 100}) {
    std::vector<float> values(static_cast<size_t>(64 * length));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 7) - 3;
    const TensorMap inputs{{"x", Tensor::of({1, length, 64}, values)}};
    EXPECT_EQ(numbers(Engine(model, Runs::Once).run(inputs)[0]), numbers(Engine(model).run(inputs)[0])) << length;
  }
}

TEST(Engine, KernelFailuresNameTheNode) {
  Engine engine(make_model({make_node("MatMul", {"x", "w"}, {"y"})}, {make_counting("w", {4, 2})},
                           {make_value("x", {2, 3})}, {"y"}));
  EXPECT_NE(error_of(ErrorCode::InvalidInput,
                     [&] {
                       engine.run({{"x", ramp({2, 3}, 0, 1)}});
                     })
                .find("MatMul 'y'"),
            std::string::npos);
}

TEST(Frame, StopsForksAndGoesOn) {
  const Engine engine(chain());
  Frame frame = engine.start({{"x", ramp({3}, 0, 1)}});
  frame.run_until(2);
  EXPECT_EQ(numbers(frame.value("b")), (std::vector<float>{2, 4, 6}));
  Frame fork = frame;
  fork.set("b", ramp({3}, 10, 0));
  fork.finish();
  frame.finish();
  EXPECT_EQ(numbers(fork.outputs()[0]), (std::vector<float>{10, 20, 30}));
  EXPECT_EQ(numbers(frame.outputs()[0]), (std::vector<float>{2, 8, 18}));
  EXPECT_THROW(frame.step(), Error);
}

TEST(Frame, FreesAtLastUseUnlessKept) {
  const Engine engine(chain());
  Frame frame = engine.start({{"x", ramp({3}, 0, 1)}}, {"a"});
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { frame.value("a"); }).find("not made yet"), std::string::npos);
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { frame.outputs(); }).find("0 of 3"), std::string::npos);
  frame.finish();
  EXPECT_EQ(numbers(frame.value("a")), (std::vector<float>{1, 2, 3}));
  EXPECT_THROW(frame.value("b"), Error);
  EXPECT_THROW(frame.value("nonsense"), Error);
}

TEST(Hooks, SeeAndReplaceValues) {
  Engine engine(chain());
  Hooks hooks;
  std::vector<float> seen;
  hooks.add("a", [&](const std::string& name, const Tensor& tensor) -> std::optional<Tensor> {
    EXPECT_EQ(name, "a");
    seen = numbers(tensor);
    return ramp({3}, 1, 0);
  });
  for (int repeat = 0; repeat < 2; ++repeat) {
    seen.clear();
    EXPECT_EQ(numbers(engine.run({{"x", ramp({3}, 0, 1)}}, hooks)[0]), (std::vector<float>{2, 2, 2}));
    EXPECT_EQ(seen, (std::vector<float>{1, 2, 3}));
  }
  EXPECT_EQ(numbers(engine.run({{"x", ramp({3}, 0, 1)}})[0]), (std::vector<float>{2, 8, 18}));
}

TEST(Hooks, AnEdgeIsOneReadersOwn) {
  Engine engine(chain());
  Hooks hooks;
  hooks.add(Edge{"a", "c", 0},
            [](const std::string&, const Tensor&) -> std::optional<Tensor> { return ramp({3}, 1, 0); });
  EXPECT_EQ(numbers(engine.run({{"x", ramp({3}, 0, 1)}}, hooks)[0]), (std::vector<float>{2, 4, 6}));
}

TEST(Hooks, InputsAndConstantsToo) {
  Engine engine(chain());
  Hooks hooks;
  hooks.add("x", [](const std::string&, const Tensor&) -> std::optional<Tensor> { return ramp({3}, 1, 0); });
  hooks.add("two", [](const std::string&, const Tensor& tensor) -> std::optional<Tensor> {
    EXPECT_EQ(numbers(tensor), (std::vector<float>{2}));
    return Tensor::scalar(3.0F);
  });
  EXPECT_EQ(numbers(engine.run({{"x", ramp({3}, 0, 1)}}, hooks)[0]), (std::vector<float>{12, 12, 12}));
}

TEST(Hooks, BadOnesAreNamed) {
  Engine engine(chain());
  const auto nothing = [](const std::string&, const Tensor&) -> std::optional<Tensor> { return std::nullopt; };
  const TensorMap inputs{{"x", ramp({3}, 0, 1)}};
  Hooks unknown;
  unknown.add("q", nothing);
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { engine.run(inputs, unknown); }).find("q"), std::string::npos);
  Hooks elsewhere;
  elsewhere.add(Edge{"a", "a", 0}, nothing);
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { engine.run(inputs, elsewhere); }).find("reads this value"),
            std::string::npos);
  Hooks misshapen;
  misshapen.add("a", [](const std::string&, const Tensor&) -> std::optional<Tensor> { return ramp({2}, 0, 0); });
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { engine.run(inputs, misshapen); }).find("shape"), std::string::npos);
}

}  // namespace
}  // namespace kaon
