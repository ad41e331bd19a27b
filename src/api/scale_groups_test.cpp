// The groups of smooth_quant and awq in every family of language models, none of which they know by name.
#include "quant/scale_groups.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "lm/language_model.h"
#include "quant/quantize.h"
#include "quant/schemes.h"

namespace kaon {
namespace {

/// Token ids, and for encoders a mask and types.
class Windows : public Dataset {
 public:
  explicit Windows(bool causal) : causal_(causal) {}
  int64_t size() const override { return 6; }
  bool has_labels() const override { return false; }
  Batch read(int64_t first, int64_t count) const override {
    std::vector<int64_t> ids;
    for (int64_t i = first * kTokens; i < (first + count) * kTokens; ++i) ids.push_back(i * i * 7 % 48);
    const auto same = [&](int64_t value) {
      return Tensor::of<int64_t>({count, kTokens}, std::vector<int64_t>(ids.size(), value));
    };
    Batch batch{{{"input_ids", Tensor::of<int64_t>({count, kTokens}, ids)}}, {}};
    if (!causal_) {
      batch.inputs["attention_mask"] = same(1);
      batch.inputs["token_type_ids"] = same(0);
    }
    return batch;
  }

 private:
  static constexpr int64_t kTokens = 16;
  bool causal_;
};

struct Expected {
  const char* folder;
  int64_t each;     ///< groups of a block
  int64_t besides;  ///< the last norm, and what reads it
};

class ScaleGroupsOf : public ::testing::TestWithParam<Expected> {};

TEST_P(ScaleGroupsOf, AFamily) {
  const lm::LanguageModel language =
      lm::LanguageModel::open(std::filesystem::path(KAON_SOURCE_DIR "/tests/data/lm") / GetParam().folder);
  const Windows data(language.facts().causal);
  Config config = scheme_config("w8a8");
  config.algorithms = {{"smooth_quant"}};
  const QuantizedModel quantized = quantize(language.whole(), config, &data);
  EXPECT_EQ(std::ssize(find_scale_groups(quantized, data)),
            language.facts().layers * GetParam().each + GetParam().besides);
  const TensorMap inputs = data.read(0, data.size()).inputs;
  const std::vector<float> before = Engine(quantized.original).run(inputs)[0].to_float();
  const std::vector<float> after = Engine(quantized.model).run(inputs)[0].to_float();
  double error = 0, energy = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    error += std::pow(static_cast<double>(after[i]) - before[i], 2);
    energy += std::pow(static_cast<double>(before[i]), 2);
  }
  EXPECT_LT(std::sqrt(error / energy), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    All, ScaleGroupsOf,
    ::testing::Values(Expected{"llama3", 4, 1}, Expected{"llama_linear", 4, 1}, Expected{"mistral", 4, 1},
                      Expected{"qwen2", 4, 1}, Expected{"qwen3", 4, 1}, Expected{"gemma2", 4, 1},
                      Expected{"phi3_long", 4, 1}, Expected{"gpt2", 3, 1},  // what a Gelu makes takes no factors
                      Expected{"opt_narrow", 2, 2},  // norms whose output goes on elsewhere; a narrow head
                      Expected{"bert", 1, 0}),
    [](const auto& one) { return one.param.folder; });

}  // namespace
}  // namespace kaon
