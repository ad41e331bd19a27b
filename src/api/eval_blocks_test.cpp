#include <gtest/gtest.h>

#include "api/eval.h"
#include "base/error.h"
#include "io/files_test.h"
#include "io/npy/npy.h"

namespace kaon {
namespace {

const std::filesystem::path kFolders = KAON_SOURCE_DIR "/tests/data/lm";

class EvalBlocksTest : public ::testing::TestWithParam<const char*> {
 protected:
  EvalBlocksTest() {
    std::vector<int64_t> ids, labels;
    for (int64_t window = 0; window < 5; ++window) {
      for (int64_t i = 0; i < 16; ++i) ids.push_back((window * 31 + i * i * 7) % 48);
      labels.insert(labels.end(), ids.end() - 15, ids.end());
      labels.push_back(kIgnoredLabel);
    }
    write_npz({{"input_ids", Tensor::of<int64_t>({5, 16}, ids)}, {"labels", Tensor::of<int64_t>({5, 16}, labels)}},
              folder_ / "data.npz");
    options_.data.data = folder_ / "data.npz";
    options_.data.batch = 2;
  }

  /// The metrics of the whole model and those block by block.
  void expect_same(const std::vector<std::string>& metrics, double tolerance) {
    options_.model = kFolders / GetParam();
    options_.metrics = metrics;
    options_.memory_mb = 0;
    const EvalReport whole = eval_model(options_);
    options_.memory_mb = 1;
    const EvalReport blocks = eval_model(options_);
    EXPECT_EQ(whole.samples, blocks.samples);
    ASSERT_EQ(whole.metrics.size(), blocks.metrics.size());
    for (size_t i = 0; i < whole.metrics.size(); ++i) {
      EXPECT_NEAR(whole.metrics[i].second, blocks.metrics[i].second, tolerance * (1 + whole.metrics[i].second))
          << whole.metrics[i].first;
    }
  }

  const TemporaryFolder folder_;
  EvalOptions options_;
};

TEST_P(EvalBlocksTest, FloatModel) { expect_same({"ppl", "loss", "top1"}, 1e-6); }

TEST_P(EvalBlocksTest, WeightsInFourBits) {
  options_.quant.scheme = "w4c";
  expect_same({"ppl", "kl", "agreement"}, 1e-5);
}

TEST_P(EvalBlocksTest, HeadLeftOut) {
  options_.quant.scheme = "w4c";
  options_.quant.exclude = {"lm_head"};
  expect_same({"ppl", "kl"}, 1e-5);
}

TEST_P(EvalBlocksTest, CalibratedOnItsOwnInputs) {
  options_.quant.scheme = "a16w8";
  expect_same({"ppl", "kl"}, 1e-3);
}

TEST_P(EvalBlocksTest, AgainstAnotherModel) {
  options_.reference = kFolders / "qwen3";
  expect_same({"loss", "kl", "agreement"}, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Some, EvalBlocksTest, ::testing::Values("llama3", "gpt2", "opt_narrow"),
                         [](const auto& row) { return std::string(row.param); });

TEST(EvalBlocks, OnlyForModelsThatPredict) {
  EvalOptions options;
  options.data.data = "data.npz";
  options.memory_mb = 1;
  options.model = kFolders / "bert";
  EXPECT_THROW(eval_model(options), Error);
  options.model = "model.onnx";
  EXPECT_THROW(eval_model(options), Error);
}

}  // namespace
}  // namespace kaon
