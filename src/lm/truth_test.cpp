// The trained models of ../shared against what Hugging Face's own code says of them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "graph/layer.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"
#include "lm/generator.h"
#include "lm/language_model.h"

namespace kaon::lm {
namespace {

const std::filesystem::path kModels = KAON_SOURCE_DIR "/../shared/models";

Tensor ids_of(const std::vector<int64_t>& ids) { return Tensor::of<int64_t>({1, std::ssize(ids)}, ids); }

/// The largest difference, relative to the largest expected value.
double worst(std::span<const float> got, std::span<const float> expected) {
  EXPECT_EQ(got.size(), expected.size());
  double gap = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    gap = std::max(gap, std::fabs(static_cast<double>(got[i]) - expected[i]));
    size = std::max(size, std::fabs(static_cast<double>(expected[i])));
  }
  return gap / size;
}

class TruthTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(kModels)) GTEST_SKIP() << "../shared is not beside the checkout";
    truth_ = read_npz(kModels / GetParam() / "truth.npz");
    for (const auto& [name, tensor] : truth_) {
      if (name == "input_ids") ids_ = tensor.to_int64();
      if (name == "logits") logits_ = tensor;
    }
  }

  NamedTensors truth_;
  std::vector<int64_t> ids_;
  Tensor logits_;
};

TEST_P(TruthTest, LogitsAreThose) {
  Engine engine(LanguageModel::open(kModels / GetParam()).whole());
  const Tensor got = engine.run({{"input_ids", ids_of(ids_)}}).front();
  EXPECT_EQ(got.shape(), (Shape{1, logits_.shape()[0], logits_.shape()[1]}));
  // These logits were computed with shorter products: Hugging Face's own code in float32 is as far from them.
  const std::map<std::string, double> own{{"opt-17m", 1.004e-2}, {"llama-9m", 1.342e-3}, {"gpt2-5m", 9.83e-4}};
  EXPECT_LT(worst(got.as<float>(), logits_.as<float>()), 1.1 * own.at(GetParam()));
  for (const auto& [name, expected] : read_npz(KAON_SOURCE_DIR "/tests/data/lm_float32.npz")) {
    if (name != GetParam()) continue;
    std::vector<float> some;
    for (int64_t row = 0; row < logits_.shape()[0]; ++row) {
      for (int64_t i = 0; i < logits_.shape()[1]; i += 61) {
        some.push_back(got.as<float>()[static_cast<size_t>(row * logits_.shape()[1] + i)]);
      }
    }
    EXPECT_LT(worst(some, expected.as<float>()), 2e-5);
  }
}

TEST_P(TruthTest, PartsAreTheWhole) {
  const LanguageModel model = LanguageModel::open(kModels / GetParam());
  const Tensor whole = Engine(model.whole()).run({{"input_ids", ids_of(ids_)}}).front();
  Tensor x = Engine(model.embedding()).run({{"input_ids", ids_of(ids_)}}).front();
  for (int64_t i = 0; i < model.facts().layers; ++i) x = Engine(model.block(i)).run({{"hidden", x}}).front();
  const Tensor got = Engine(model.head()).run({{"hidden", x}}).front();
  EXPECT_LT(worst(got.as<float>(), whole.as<float>()), 1e-6);
}

TEST_P(TruthTest, LayersAreNamedAsOnTheHub) {
  const LanguageModel model = LanguageModel::open(kModels / GetParam());
  const Graph graph = model.whole().graph;
  std::set<std::string> names;
  for (const Layer& layer : layers(graph)) names.insert(layer.name);
  const std::string family = model.family_name();
  const char* first = family == "gpt2"  ? "transformer.h.0.attn.c_attn"
                      : family == "opt" ? "model.decoder.layers.0.self_attn.q_proj"
                                        : "model.layers.0.self_attn.q_proj";
  EXPECT_TRUE(names.contains(first)) << first;
  EXPECT_TRUE(names.contains("lm_head"));
}

/// Token by token with a cache, the likeliest each time.
TEST_P(TruthTest, GreedyContinuations) {
  const LanguageModel model = LanguageModel::open(kModels / GetParam());
  const nlohmann::json truth = nlohmann::json::parse(std::ifstream(kModels / GetParam() / "truth.json"));
  constexpr size_t kNew = 48;
  for (const nlohmann::json& row : truth.at("greedy_48")) {
    const auto expected = row.at("ids").get<std::vector<int64_t>>();
    ASSERT_GT(expected.size(), kNew);
    Generator generator(model.whole({.cache = true, .last_only = true}), model.facts());
    std::vector<int64_t> ids(expected.begin(), expected.end() - kNew);
    std::span<const float> logits = generator.feed(ids);
    for (size_t i = 0; i < kNew; ++i) {
      ids.push_back(choose(logits, {}, i));
      logits = generator.feed(std::span(&ids.back(), 1));
    }
    EXPECT_EQ(ids, expected) << row.at("prompt");
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, TruthTest, ::testing::Values("opt-17m", "llama-9m", "gpt2-5m"), [](const auto& row) {
  std::string name = row.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(Stories, FolderAndOnnxFileAgree) {
  if (!std::filesystem::is_directory(kModels)) GTEST_SKIP() << "../shared is not beside the checkout";
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 100; ++i) ids.push_back(i * 37 % 512);
  Engine folder(LanguageModel::open(kModels / "stories260K").whole());
  Engine file(read_onnx(kModels / "stories260K" / "model.onnx"));
  const Tensor got = folder.run({{"input_ids", ids_of(ids)}}).front();
  const Tensor expected = file.run({{"input_ids", ids_of(ids)}}).front();
  EXPECT_LT(worst(got.as<float>(), expected.as<float>()), 2e-5);
}

}  // namespace
}  // namespace kaon::lm
