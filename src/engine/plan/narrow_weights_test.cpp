// Weights in 16 bits: kept as they are stored, widened once, when a product packs them.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "engine/engine.h"
#include "engine/plan/lowering.h"
#include "engine/plan/trace.h"
#include "graph/build_test.h"
#include "numerics/half.h"

namespace kaon {
namespace {

constexpr int64_t kTerms = 48;
constexpr int64_t kColumns = 40;

Tensor weights(DType type, const Shape& shape) {
  std::vector<uint16_t> codes(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < codes.size(); ++i) {
    const float value = static_cast<float>(i * 2654435761U % 1000) / 500 - 1;
    codes[i] = type == DType::Float16 ? float32_to_float16(value) : float32_to_bfloat16(value);
  }
  return Tensor::copy_bytes(type, shape, std::as_bytes(std::span(codes)));
}

Tensor input() {
  std::vector<float> values(3 * kTerms);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) / 8 - 1;
  return Tensor::of<float>({3, kTerms}, values);
}

Attribute to_float32() { return {"to", static_cast<int64_t>(DType::Float32), {}}; }

/// y = Gemm(MatMul(x, w), v): both weights widened from `stored`, or given as float32 where `wide`.
Model products(DType stored, bool wide) {
  const Tensor w = weights(stored, {kTerms, kColumns});
  const Tensor v = weights(stored, {kTerms, kColumns});
  std::vector<Node> nodes{make_node("MatMul", {"x", "w"}, {"a"}),
                          make_node("Gemm", {"a", "v"}, {"y"}, {{"transB", int64_t{1}, {}}})};
  if (wide) {
    return make_model(nodes,
                      {{"w", Tensor::of<float>(w.shape(), w.to_float()), {}, {}},
                       {"v", Tensor::of<float>(v.shape(), v.to_float()), {}, {}}},
                      {make_value("x", {3, kTerms})}, {"y"});
  }
  nodes.insert(nodes.begin(),
               {make_node("Cast", {"w16"}, {"w"}, {to_float32()}), make_node("Cast", {"v16"}, {"v"}, {to_float32()})});
  return make_model(nodes, {{"w16", w, {}, {}}, {"v16", v, {}, {}}}, {make_value("x", {3, kTerms})}, {"y"});
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.shape() == b.shape() && std::ranges::equal(a.bytes(), b.bytes());
}

class NarrowWeights : public testing::TestWithParam<DType> {};

TEST_P(NarrowWeights, GiveTheBitsOfWideOnes) {
  const TensorMap inputs{{"x", input()}};
  Engine wide(products(GetParam(), true));
  Engine narrow(products(GetParam(), false));
  const Tensor expected = wide.run(inputs)[0];
  EXPECT_TRUE(same_bits(narrow.run(inputs)[0], expected));
  Hooks hooks;
  int seen = 0;
  for (const char* value : {"w", "v"}) {
    hooks.add(value, [&](const std::string& name, const Tensor& tensor) -> std::optional<Tensor> {
      EXPECT_TRUE(same_bits(tensor, wide.model().graph.find_initializer(name)->tensor));
      ++seen;
      return std::nullopt;
    });
  }
  EXPECT_EQ(narrow.run(inputs, hooks)[0].shape(), expected.shape());
  EXPECT_EQ(seen, 2);
}

TEST_P(NarrowWeights, AreNotCopiedByTheTrace) {
  const auto program = Program::compile(products(GetParam(), false));
  std::vector<Value> table = program->new_table();
  table[static_cast<size_t>(program->find_value("x"))] = to_value(input());
  const Hooks none;
  TraceShared shared;
  const Trace trace = trace_program(*program, table, HookTable(*program, none), shared, /*shapes_only=*/true);
  for (const char* name : {"w", "v"}) {
    const auto id = static_cast<size_t>(program->find_value(name));
    EXPECT_EQ(trace.values[id]->type, DType::Float32);
    EXPECT_TRUE(trace.values[id]->is_narrow());
    const auto* stored = program->model().graph.find_initializer(std::string(name) + "16")->tensor.bytes().data();
    EXPECT_EQ(trace.values[id]->constant.tensor.data_ptr(), stored);
    EXPECT_EQ(shared.constants[id]->constant.tensor.data_ptr(), stored);
  }
}

TEST_P(NarrowWeights, AreWidenedWhereOthersReadThem) {
  Model model = products(GetParam(), false);
  model.graph.outputs.push_back({.name = "w"});
  model.graph.nodes.push_back(make_node("Neg", {"v"}, {"n"}));
  model.graph.outputs.push_back({.name = "n"});
  Engine engine(model);
  const std::vector<Tensor> outputs = engine.run({{"x", input()}});
  Engine wide(products(GetParam(), true));
  EXPECT_TRUE(same_bits(outputs[0], wide.run({{"x", input()}})[0]));
  EXPECT_TRUE(same_bits(outputs[1], wide.model().graph.find_initializer("w")->tensor));
  EXPECT_EQ(outputs[2].as<float>()[5], -wide.model().graph.find_initializer("v")->tensor.as<float>()[5]);
}

TEST_P(NarrowWeights, AProductThatOneDnnDoesNotTakeReadsThemWide) {
  Model model = products(GetParam(), false);
  model.graph.nodes.back().set("alpha", 0.5F);
  Engine engine(model);
  Frame frame = engine.start({{"x", input()}});
  frame.finish();
  const Tensor planned = engine.run({{"x", input()}})[0];
  const std::span<const float> expected = frame.outputs()[0].as<float>();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(planned.as<float>()[i], expected[i], 1e-4F);
}

TEST_P(NarrowWeights, PackLikeWideOnes) {
  const Value narrow = to_value(weights(GetParam(), {kTerms, kColumns}));
  const at::Tensor wide = narrow.tensor.to(at::kFloat);
  const Desc plain = plain_desc({kTerms, kColumns});
  const Desc turned({kTerms, kColumns}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ba);
  PackedWeights packed;
  for (const Desc& to : {plain, turned}) {
    const dnnl::memory expected = packed.pack(wide, plain, to);
    const dnnl::memory found = packed.pack(narrow.tensor, plain, to);
    EXPECT_EQ(std::memcmp(found.get_data_handle(), expected.get_data_handle(), to.get_size()), 0);
    EXPECT_EQ(packed.pack(narrow.tensor, plain, to).get_data_handle(), found.get_data_handle());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowWeights, testing::Values(DType::Float16, DType::BFloat16),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace kaon
