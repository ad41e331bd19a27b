#include "lm/cache.h"

#include <gtest/gtest.h>

namespace kaon::lm {
namespace {

constexpr int64_t kHeads = 2, kWidth = 3, kSamples = 2;

/// Tells sample, token, head and place of an element of the key or value.
float number(int64_t sample, int64_t token, int64_t head, int64_t i, bool value) {
  return static_cast<float>((((sample * 2000 + token) * kHeads + head) * kWidth + i) * 2 + (value ? 1 : 0));
}

Tensor rows(int64_t first, int64_t count, bool value) {
  std::vector<float> numbers;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    for (int64_t token = first; token < first + count; ++token) {
      for (int64_t head = 0; head < kHeads; ++head) {
        for (int64_t i = 0; i < kWidth; ++i) numbers.push_back(number(sample, token, head, i, value));
      }
    }
  }
  return Tensor::of<float>({kSamples, count, kHeads * kWidth}, numbers);
}

TEST(KeyValueCache, KeepsTokensInTheirPlacesAsItGrows) {
  Graph graph;
  for (const char* name : {"logits", "new.0.key", "new.0.value"}) graph.outputs.push_back({.name = name});
  Facts facts;
  facts.kv_heads = kHeads;
  facts.head_width = kWidth;
  facts.positions = 1000;
  KeyValueCache cache(graph, facts, kSamples);
  int64_t tokens = 0;
  for (const int64_t count : {3, 1, 508, 1, 1, 486}) {
    cache.add({Tensor(), rows(tokens, count, false), rows(tokens, count, true)});
    tokens += count;
    TensorMap inputs;
    cache.put_into(inputs);
    ASSERT_EQ(inputs.size(), 3U);
    EXPECT_EQ(inputs.at("past_tokens").to_int64(), (std::vector<int64_t>{tokens}));
    for (const bool value : {false, true}) {
      const Tensor& past = inputs.at(value ? "past.0.value" : "past.0.key");
      const int64_t room = past.shape().at(2);
      ASSERT_EQ(past.shape(), (Shape{kSamples, kHeads, room, kWidth}));
      ASSERT_GE(room, tokens);
      EXPECT_LE(room, facts.positions);
      for (int64_t at = 0; at < past.size(); ++at) {
        const int64_t i = at % kWidth, token = at / kWidth % room, head = at / kWidth / room % kHeads;
        const int64_t sample = at / kWidth / room / kHeads;
        const float expected = token < tokens ? number(sample, token, head, i, value) : 0;
        ASSERT_EQ(past.as<float>()[static_cast<size_t>(at)], expected) << tokens << " tokens, element " << at;
      }
    }
  }
  EXPECT_EQ(cache.tokens(), 1000);
}

}  // namespace
}  // namespace kaon::lm
