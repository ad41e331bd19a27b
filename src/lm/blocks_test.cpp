// Blocks that share one program give what each gives alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/block_engine.h"
#include "lm/language_model.h"

namespace kaon::lm {
namespace {

namespace fs = std::filesystem;

const fs::path kFolders = KAON_SOURCE_DIR "/tests/data/lm";
const fs::path kModels = KAON_SOURCE_DIR "/../shared/models";

Tensor some_states(int64_t samples, int64_t tokens, int64_t width) {
  std::vector<float> values;
  for (int64_t i = 0; i < samples * tokens * width; ++i) {
    values.push_back(static_cast<float>((i * 7919 + 13) % 1009) / 504.0F - 1.0F);
  }
  return Tensor::of<float>({samples, tokens, width}, values);
}

/// Twice around: each block's weights come once behind another's and once behind the last one's.
void expect_same_as_alone(const LanguageModel& model, BlockEngine& shared, const Tensor& states) {
  const int64_t layers = model.facts().layers;
  for (int64_t i = 0; i < 2 * layers; ++i) {
    SCOPED_TRACE(i);
    shared.use(model.block(i % layers));
    const Tensor got = shared.run({{"hidden", states}}).front();
    const Tensor expected = Engine(model.block(i % layers)).run({{"hidden", states}}).front();
    ASSERT_EQ(got.shape(), expected.shape());
    ASSERT_TRUE(std::ranges::equal(got.bytes(), expected.bytes()));
  }
}

TEST(Blocks, OfEveryFamilyShareAProgram) {
  for (const auto& entry : fs::directory_iterator(kFolders)) {
    SCOPED_TRACE(entry.path().filename());
    const LanguageModel model = LanguageModel::open(entry.path());
    if (!model.facts().causal) continue;
    // Their two blocks differ by a window, or by the scale of their attention.
    const bool alike = !std::set<std::string>{"gemma2", "qwen2", "gpt2"}.contains(entry.path().filename());
    BlockEngine shared;
    int64_t shapes = 0;
    // One row is multiplied as it comes, more are packed.
    for (const auto& [samples, tokens] : {std::pair(1, 7), std::pair(1, 1), std::pair(2, 30)}) {
      expect_same_as_alone(model, shared, some_states(samples, tokens, model.facts().width));
      ++shapes;
      EXPECT_EQ(shared.programs_made(), alike ? 1 : 4 * shapes);
      EXPECT_EQ(shared.plans_made(), alike ? shapes : 1);
    }
  }
}

TEST(Blocks, OfRealModelsShareAProgram) {
  if (!fs::is_directory(kModels)) GTEST_SKIP() << "../shared is not beside the checkout";
  for (const char* name : {"opt-17m", "llama-9m", "gpt2-5m"}) {
    SCOPED_TRACE(name);
    const LanguageModel model = LanguageModel::open(kModels / name);
    BlockEngine shared;
    expect_same_as_alone(model, shared, some_states(1, 200, model.facts().width));
    EXPECT_EQ(shared.programs_made(), 1);
    EXPECT_EQ(shared.plans_made(), 1);
  }
}

/// Numbers that kernels are made for are no weights: where they differ, so do the programs.
TEST(Blocks, OtherNumbersMakeAnotherProgram) {
  const LanguageModel model = LanguageModel::open(kFolders / "llama3");
  const Tensor states = some_states(1, 7, model.facts().width);
  Model other = model.block(1);
  const auto rope = std::ranges::find(other.graph.initializers, "rope.frequencies", &Initializer::name);
  ASSERT_NE(rope, other.graph.initializers.end());
  std::vector<float> turned = rope->tensor.to_float();
  for (float& frequency : turned) frequency *= 2;
  rope->tensor = Tensor::of<float>(rope->tensor.shape(), turned);
  BlockEngine shared;
  shared.use(model.block(0));
  shared.run({{"hidden", states}});
  shared.use(other);
  EXPECT_EQ(shared.programs_made(), 2);
  const Tensor got = shared.run({{"hidden", states}}).front();
  EXPECT_TRUE(std::ranges::equal(got.bytes(), Engine(other).run({{"hidden", states}}).front().bytes()));
}

}  // namespace
}  // namespace kaon::lm
