#include "api/quantize_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "api/language_parts.h"
#include "api/load_model.h"
#include "api/quantize_gguf.h"
#include "base/error.h"
#include "engine/engine.h"
#include "io/files_test.h"
#include "io/npy/npy.h"
#include "quant/quantize.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

const fs::path kFolders = KAON_SOURCE_DIR "/tests/data/lm";

Tensor some_ids(int64_t windows, int64_t tokens) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < windows * tokens; ++i) ids.push_back((i * i * 7 + i / tokens * 31) % 48);
  return Tensor::of<int64_t>({windows, tokens}, ids);
}

std::vector<float> logits_of(Model model) {
  return Engine(std::move(model)).run({{"input_ids", some_ids(2, 12)}}).front().to_float();
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double lost = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    lost += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    all += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(lost / all);
}

std::string bytes_in(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Config config_for(const std::string& scheme) {
  if (scheme != "small_groups") return scheme_config(scheme);
  // Groups that do not divide the rows of 24.
  return parse_config(nlohmann::ordered_json::parse(R"({"global": {"weight": {"format": "uint4",
      "granularity": "per_group", "group_size": 10, "symmetric": false}}})"),
                      "test");
}

class QuantizeFolderTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  const TemporaryFolder folder_;
};

// Scales are float32 unless the config says otherwise, so that the file says exactly what is simulated.
TEST_P(QuantizeFolderTest, TheFolderGivesWhatIsSimulated) {
  const auto [family, scheme] = GetParam();
  const Config config = config_for(scheme);
  const QuantizeReport report = quantize_folder(kFolders / family, folder_ / "out", config, {}, {});
  EXPECT_GT(report.layers.size(), 4U);
  EXPECT_GT(report.bytes_after, 0);
  const lm::LanguageModel model = lm::LanguageModel::open(kFolders / family);
  Config same = for_language_model(config, model);
  if (scheme == std::string("nvfp4")) same.global.input = {};
  const std::vector<float> simulated = logits_of(simulate(quantize(model.whole(), same)));
  EXPECT_LT(distance(simulated, logits_of(load_model(folder_ / "out"))), 1e-5);
  EXPECT_GT(distance(simulated, logits_of(model.whole())), 1e-4) << "as if nothing were quantized";
  EXPECT_EQ(lm::LanguageModel::open(folder_ / "out").parameters(), model.parameters());
}

INSTANTIATE_TEST_SUITE_P(Schemes, QuantizeFolderTest,
                         ::testing::Combine(::testing::Values("mistral", "qwen2"),
                                            ::testing::Values("w4g32", "w4g32s", "w4c", "w8", "w8c", "fp8d", "mxfp8",
                                                              "nvfp4", "mxfp4", "w8a8d", "small_groups")));
INSTANTIATE_TEST_SUITE_P(Families, QuantizeFolderTest,
                         ::testing::Combine(::testing::Values("qwen2_plain", "phi3_short", "gemma2", "llama3", "qwen3"),
                                            ::testing::Values("w4g32")));

class QuantizeFolderFilesTest : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;

  DataOptions calibration() {
    write_npz({{"input_ids", some_ids(12, 16)}}, folder_ / "calib.npz");
    DataOptions data;
    data.calib = folder_ / "calib.npz";
    data.batch = 4;
    return data;
  }
};

TEST_F(QuantizeFolderFilesTest, ScalesHaveTheTypeThatTheConfigSays) {
  Config small = scheme_config("w4g32");
  small.global.weight.spec->scale_type = ScaleType::BFloat16;
  quantize_folder(kFolders / "llama3", folder_ / "out", small, {}, {});
  for (const auto& [name, at] : read_checkpoint(folder_ / "out")) {
    if (name.ends_with("down_proj.weight_scale")) {
      EXPECT_EQ(at.tensor.type(), DType::BFloat16) << name;
    }
    EXPECT_FALSE(name.ends_with("down_proj.weight")) << name;
  }
  const auto config = nlohmann::json::parse(std::ifstream(folder_ / "out" / "config.json"));
  EXPECT_EQ(config["quantization_config"]["format"], "pack-quantized");
  EXPECT_EQ(config["quantization_config"]["ignore"], nlohmann::json::array({"lm_head"}));
  EXPECT_EQ(config["vocab_size"], 48);
}

TEST_F(QuantizeFolderFilesTest, GptqIsNearerThanRoundingToTheNearest) {
  Config config = scheme_config("w4c");
  const std::vector<float> exact = logits_of(load_model(kFolders / "mistral"));
  quantize_folder(kFolders / "mistral", folder_ / "nearest", config, {}, {});
  config.algorithms.push_back({"gptq"});
  const QuantizeReport report = quantize_folder(kFolders / "mistral", folder_ / "gptq", config, calibration(), {});
  ASSERT_EQ(report.algorithms.size(), 1U);
  EXPECT_EQ(report.algorithms[0].changed, 14);
  EXPECT_EQ(report.calibration.samples, 12);
  EXPECT_LT(distance(exact, logits_of(load_model(folder_ / "gptq"))),
            distance(exact, logits_of(load_model(folder_ / "nearest"))));
}

TEST_F(QuantizeFolderFilesTest, StaticInputsAreStored) {
  quantize_folder(kFolders / "mistral", folder_ / "out", scheme_config("w8a8c"), calibration(), {});
  const auto tensors = read_checkpoint(folder_ / "out");
  EXPECT_TRUE(tensors.contains("model.layers.1.mlp.down_proj.input_scale"));
  EXPECT_EQ(tensors.at("model.layers.1.mlp.down_proj.input_zero_point").tensor.type(), DType::Int8);
  EXPECT_LT(distance(logits_of(load_model(kFolders / "mistral")), logits_of(load_model(folder_ / "out"))), 0.1);
}

TEST_F(QuantizeFolderFilesTest, DifferentLayersDifferently) {
  const Config config = parse_config(nlohmann::ordered_json::parse(R"({"scheme": "w4c",
      "by_name": {"*.down_proj": {"weight": {"format": "int8", "granularity": "per_channel"}}},
      "exclude": ["model.layers.0.*"]})"),
                                     "test");
  const QuantizeReport report = quantize_folder(kFolders / "mistral", folder_ / "out", config, {}, {});
  EXPECT_EQ(report.layers.size(), 7U);
  const lm::LanguageModel model = lm::LanguageModel::open(kFolders / "mistral");
  const std::vector<float> simulated = logits_of(simulate(quantize(model.whole(), for_language_model(config, model))));
  EXPECT_LT(distance(simulated, logits_of(load_model(folder_ / "out"))), 1e-5);
}

TEST_F(QuantizeFolderFilesTest, OtherMethodsHoldTheSame) {
  for (const char* method : {"awq", "gptq"}) {
    for (const char* scheme : {"w4g32", "w4g32s"}) {
      FolderOptions options;
      options.format = method;
      Config config = scheme_config(scheme);
      config.global.weight.spec->group_size = 8;  // divides all widths of this model
      const fs::path out = folder_ / (std::string(method) + scheme);
      quantize_folder(kFolders / "phi3_short", out, config, {}, options);
      const lm::LanguageModel model = lm::LanguageModel::open(kFolders / "phi3_short");
      config.global.weight.spec->scale_type = ScaleType::Float16;
      const std::vector<float> simulated =
          logits_of(simulate(quantize(model.whole(), for_language_model(config, model))));
      EXPECT_LT(distance(simulated, logits_of(load_model(out))), 1e-5) << method << " " << scheme;
      EXPECT_EQ(lm::LanguageModel::open(out).parameters(), model.parameters());
    }
  }
}

TEST_F(QuantizeFolderFilesTest, QuarkHoldsTheSame) {
  FolderOptions options;
  options.format = "quark";
  for (const char* scheme : {"w4g32", "w4g32s", "w4c", "w8c", "w8", "fp8d", "mxfp4", "w8a8c"}) {
    Config config = scheme_config(scheme);
    if (config.global.weight.spec->granularity == Granularity::PerGroup) config.global.weight.spec->group_size = 8;
    const fs::path out = folder_ / scheme;
    const bool learns = scheme == std::string("w8a8c");
    quantize_folder(kFolders / "phi3_short", out, config, learns ? calibration() : DataOptions{}, options);
    const lm::LanguageModel model = lm::LanguageModel::open(kFolders / "phi3_short");
    EXPECT_EQ(lm::LanguageModel::open(out).parameters(), model.parameters()) << scheme;
    if (learns) continue;  // read back while it was written
    const std::vector<float> simulated =
        logits_of(simulate(quantize(model.whole(), for_language_model(config, model))));
    EXPECT_LT(distance(simulated, logits_of(load_model(out))), 1e-5) << scheme;
  }
  const auto config = nlohmann::json::parse(std::ifstream(folder_ / "w4g32s" / "config.json"))["quantization_config"];
  EXPECT_EQ(config["global_quant_config"]["weight"]["dtype"], "int4");
  const Tensor scale = read_checkpoint(folder_ / "w8a8c").at("model.layers.1.mlp.down_proj.input_scale").tensor;
  EXPECT_EQ(scale.shape(), Shape{});
}

// Bytes are what counts: a run that goes on where another stopped must not differ from one that never stopped.
TEST_F(QuantizeFolderFilesTest, ARunGoesOnWhereAnotherStopped) {
  Config config = scheme_config("w4c");
  config.algorithms.push_back({"gptq"});
  const DataOptions data = calibration();
  quantize_folder(kFolders / "mistral", folder_ / "whole", config, data, {});

  struct Stop : Progress {
    void begin(const std::string& what, int64_t) override { in_blocks = what == "blocks"; }
    void at(int64_t done, const std::string&) override {
      if (in_blocks && done == 1) throw std::runtime_error("stopped");
    }
    bool in_blocks = false;
  };
  FolderOptions options;
  Stop stop;
  options.progress = &stop;
  options.resume = true;
  // Only what a killed run left is gone on with.
  fs::create_directory(folder_ / "out.0123456789abcdef.part");
  EXPECT_THROW(quantize_folder(kFolders / "mistral", folder_ / "out", config, data, options), std::runtime_error);
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  options.progress = &no_progress();
  Config other = config;
  other.algorithms.clear();
  EXPECT_THROW(quantize_folder(kFolders / "mistral", folder_ / "out", other, data, options), Error);
  const QuantizeReport report = quantize_folder(kFolders / "mistral", folder_ / "out", config, data, options);
  EXPECT_EQ(report.algorithms.at(0).changed, 7) << "the second block's layers alone";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "whole")) {
    const fs::path file = entry.path().filename();
    EXPECT_EQ(bytes_in(entry.path()), bytes_in(folder_ / "out" / file)) << file;
  }
  EXPECT_FALSE(fs::exists(folder_ / "out.0123456789abcdef.part"));
}

// Names, keys, permuted rows, turned matrices and rotary factors: the file gives what the folder gives.
TEST_F(QuantizeFolderFilesTest, GgufFilesGiveWhatTheFolderGives) {
  for (const char* family : {"llama3", "llama_linear", "qwen2_plain", "qwen3", "gpt2_plain"}) {
    const QuantizeReport report = quantize_gguf(kFolders / family, folder_ / "out.gguf", "f32", {}, {}, {});
    EXPECT_GT(report.bytes_after, 0) << family;
    EXPECT_LT(distance(logits_of(load_model(kFolders / family)), logits_of(load_model(folder_ / "out.gguf"))), 2e-5)
        << family;
  }
  // Rows of 16 and 24 are no blocks of 32.
  const QuantizeReport report = quantize_gguf(kFolders / "llama3", folder_ / "q.gguf", "q4_0", {}, {}, {});
  EXPECT_TRUE(report.layers.empty());
  EXPECT_FALSE(report.skipped.empty());
  EXPECT_THROW(quantize_gguf(kFolders / "opt_narrow", folder_ / "opt.gguf", "q8_0", {}, {}, {}), Error);
  EXPECT_THROW(quantize_gguf(kFolders / "llama3", folder_ / "x.gguf", "w4g32", {}, {}, {}), Error);
  EXPECT_FALSE(fs::exists(folder_ / "opt.gguf"));
}

TEST_F(QuantizeFolderFilesTest, WhatCannotBeStoredLeavesNothingBehind) {
  const auto refused = [&](const char* family, const char* scheme, const std::string& message) {
    try {
      quantize_folder(kFolders / family, folder_ / "out", scheme_config(scheme), {}, {});
      ADD_FAILURE() << family << " as " << scheme;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  };
  refused("gpt2", "w4g32", "use --format gguf or onnx");
  refused("mistral", "mxint8", "has no place");
  refused("mistral", "w8a8c", "give --calib");
}

}  // namespace
}  // namespace kaon
