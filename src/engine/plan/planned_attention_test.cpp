// Attention, rotary embeddings and norms of rows: the plan's own way against the kernels'.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/engine.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

Tensor numbers(Shape shape, uint32_t seed, float spread = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (float& value : values) value = normal(generator);
  return Tensor::of(std::move(shape), values);
}

Tensor flags(Shape shape, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<uint8_t> values(static_cast<size_t>(element_count(shape)));
  for (uint8_t& value : values) value = generator() % 3 != 0 ? 1 : 0;
  return Tensor::copy_bytes(DType::Bool, std::move(shape), std::as_bytes(std::span(values)));
}

Attribute number(const char* name, int64_t value) { return {name, value, {}}; }

/// One node on inputs of its own: planned, and step by step.
void check(const std::string& op, const std::vector<Tensor>& inputs, std::vector<Attribute> attributes) {
  std::vector<std::string> names;
  std::vector<ValueInfo> infos;
  TensorMap given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    names.push_back(inputs[i].defined() ? fmt::format("x{}", i) : "");
    if (!inputs[i].defined()) continue;
    infos.push_back(make_value(names[i], inputs[i].shape(), inputs[i].type()));
    given[names[i]] = inputs[i];
  }
  Engine engine(make_model({make_node(op, names, {"y"}, std::move(attributes))}, {}, infos, {"y"}, 23));
  Frame frame = engine.start(given);
  frame.finish();
  const Tensor expected = frame.outputs()[0];
  for (int run = 0; run < 2; ++run) {
    const Tensor found = engine.run(given)[0];
    ASSERT_EQ(found.shape(), expected.shape());
    double energy = 0, error = 0;
    for (int64_t i = 0; i < found.size(); ++i) {
      const double e = expected.as<float>()[static_cast<size_t>(i)];
      const double f = found.as<float>()[static_cast<size_t>(i)];
      ASSERT_EQ(std::isnan(f), std::isnan(e)) << i;
      if (std::isnan(e)) continue;
      energy += e * e;
      error += (f - e) * (f - e);
    }
    EXPECT_LE(error, 1e-11 * energy) << op << " " << to_string(inputs[0].shape());
  }
}

void check_attention(int64_t samples, int64_t heads, int64_t key_heads, int64_t queries, int64_t keys, int64_t width,
                     int64_t value_width, const Tensor& mask, bool causal, bool flat, float softcap = 0) {
  const auto operand = [&](int64_t count, int64_t tokens, int64_t size, uint32_t seed) {
    return numbers(flat ? Shape{samples, tokens, count * size} : Shape{samples, count, tokens, size}, seed);
  };
  std::vector<Tensor> inputs{operand(heads, queries, width, 1), operand(key_heads, keys, width, 2),
                             operand(key_heads, keys, value_width, 3)};
  if (mask.defined()) inputs.push_back(mask);
  std::vector<Attribute> attributes{number("is_causal", causal ? 1 : 0)};
  if (flat) {
    attributes.push_back(number("q_num_heads", heads));
    attributes.push_back(number("kv_num_heads", key_heads));
  }
  if (softcap > 0) attributes.push_back({"softcap", softcap, {}});
  check("Attention", inputs, std::move(attributes));
}

TEST(PlannedAttention, OfAnySizes) {
  for (const bool flat : {false, true}) {
    for (const bool causal : {false, true}) {
      check_attention(1, 1, 1, 1, 1, 4, 4, {}, causal, flat);
      check_attention(2, 6, 2, 37, 37, 12, 12, {}, causal, flat);
      check_attention(3, 4, 4, 64, 64, 48, 48, {}, causal, flat);
      check_attention(2, 3, 1, 5, 70, 7, 9, {}, causal, flat);
      check_attention(1, 2, 2, 33, 20, 31, 40, {}, causal, flat);
      check_attention(2, 4, 2, 130, 131, 24, 5, {}, causal, flat);
    }
  }
  check_attention(2, 4, 2, 12, 12, 8, 8, {}, true, true, /*softcap=*/3);
}

TEST(PlannedAttention, UnderMasks) {
  for (const bool causal : {false, true}) {
    for (const Shape& shape : {Shape{20, 20}, Shape{1, 20}, Shape{2, 1, 1, 20}, Shape{1, 4, 20, 20},
                               Shape{2, 4, 20, 20}, Shape{4, 20, 20}}) {
      check_attention(2, 4, 2, 20, 20, 8, 8, flags(shape, 9), causal, true);
      check_attention(2, 4, 2, 20, 20, 8, 8, numbers(shape, 10, 3), causal, false);
    }
    // Keys behind the mask's end are not looked at.
    check_attention(2, 4, 2, 20, 20, 8, 8, flags({20, 15}, 11), causal, true);
  }
}

TEST(PlannedAttention, WithAPast) {
  const auto attend = [](int64_t samples, int64_t heads, int64_t key_heads, int64_t tokens, int64_t room, int64_t width,
                         int64_t value_width, const Tensor& mask, bool causal, float softcap) {
    std::vector<Attribute> attributes{number("is_causal", causal ? 1 : 0), number("q_num_heads", heads),
                                      number("kv_num_heads", key_heads)};
    if (softcap > 0) attributes.push_back({"softcap", softcap, {}});
    check("Attention",
          {numbers({samples, tokens, heads * width}, 1), numbers({samples, tokens, key_heads * width}, 2),
           numbers({samples, tokens, key_heads * value_width}, 3), mask, numbers({samples, key_heads, room, width}, 4),
           numbers({samples, key_heads, room, value_width}, 5)},
          std::move(attributes));
  };
  for (const bool causal : {false, true}) {
    for (const float softcap : {0.0F, 2.0F}) {
      attend(1, 4, 2, 1, 50, 16, 16, flags({1, 51}, 6), causal, softcap);
      attend(1, 4, 4, 1, 3, 7, 9, {}, causal, softcap);
      attend(2, 6, 2, 5, 37, 12, 20, flags({5, 42}, 7), causal, softcap);
      attend(2, 6, 2, 5, 37, 12, 20, flags({2, 1, 5, 42}, 8), causal, softcap);
      attend(2, 3, 1, 3, 20, 8, 8, flags({1, 3, 1, 23}, 9), causal, softcap);
    }
  }
  // Nothing counts, and what is left to the kernel.
  attend(1, 2, 2, 1, 8, 8, 8, Tensor::copy_bytes(DType::Bool, {1, 9}, std::vector<std::byte>(9)), true, 0);
  attend(1, 2, 2, 2, 8, 8, 8, numbers({2, 10}, 10), true, 0);
}

TEST(PlannedAttention, AQueryThatSeesNothingGivesZeros) {
  std::vector<float> values(100, 0);
  std::fill(values.begin() + 30, values.begin() + 50, -INFINITY);
  check_attention(1, 2, 2, 10, 10, 8, 8, Tensor::of<float>({10, 10}, values), false, true);
  values[5] = NAN;
  check_attention(1, 2, 2, 10, 10, 8, 8, Tensor::of<float>({10, 10}, values), false, true);
}

TEST(PlannedRotaryEmbedding, TurnsLikeTheKernel) {
  for (const int64_t interleaved : {0, 1}) {
    for (const int64_t samples : {1, 3}) {
      const Tensor x = numbers({3, 11, 40}, 1), apart = numbers({3, 5, 11, 8}, 2);
      check("RotaryEmbedding", {x, numbers({samples, 11, 4}, 3), numbers({samples, 11, 4}, 4)},
            {number("num_heads", 5), number("interleaved", interleaved)});
      check("RotaryEmbedding", {apart, numbers({samples, 11, 3}, 3), numbers({samples, 11, 3}, 4)},
            {number("rotary_embedding_dim", 6), number("interleaved", interleaved)});
    }
  }
}

TEST(PlannedRowNorm, IsTheKernels) {
  for (const int64_t columns : {2, 7, 16, 33, 288}) {
    const Tensor x = numbers({3, 5, columns}, 1), scale = numbers({columns}, 2), bias = numbers({columns}, 3);
    check("RMSNormalization", {x, scale}, {{"epsilon", 1e-3F, {}}});
    check("LayerNormalization", {x, scale, bias}, {number("axis", 2)});
    check("LayerNormalization", {x, scale}, {});
  }
  // Left to the kernel.
  check("LayerNormalization", {numbers({3, 5, 4}, 1), numbers({5, 4}, 2)}, {number("axis", 1)});
}

TEST(PlannedSoftmax, OfAnyLengthIsTheKernels) {
  for (const int64_t length : {1, 3, 17, 100}) {
    ValueInfo x = make_value("x", {2, 1, 1});
    (*x.shape)[1] = (*x.shape)[2] = Dim{};
    Engine engine(make_model({make_node("Softmax", {"x"}, {"y"})}, {}, {x}, {"y"}, 17));
    Tensor given = numbers({2, 4, length}, 5, 6);
    std::vector<float> values(given.as<float>().begin(), given.as<float>().end());
    values[0] = -INFINITY;
    values[static_cast<size_t>(length)] = NAN;
    std::fill_n(values.begin() + 2 * length, length, -INFINITY);
    values[static_cast<size_t>(3 * length)] = INFINITY;
    const TensorMap inputs{{"x", Tensor::of({2, 4, length}, values)}};
    Frame frame = engine.start(inputs);
    frame.finish();
    const std::vector<float> expected = frame.outputs()[0].to_float(), found = engine.run(inputs)[0].to_float();
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(std::isnan(found[i]), std::isnan(expected[i])) << length << " " << i;
      if (!std::isnan(expected[i])) {
        ASSERT_NEAR(found[i], expected[i], 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace kaon
