// Small random models of every family against Hugging Face's own code (tests/oracles/lm_families.py), and bad folders.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "engine/engine.h"
#include "io/files_test.h"
#include "io/npy/npy.h"
#include "io/safetensors/safetensors.h"
#include "lm/cache.h"
#include "lm/language_model.h"

namespace kaon::lm {
namespace {

namespace fs = std::filesystem;

const fs::path kFolders = KAON_SOURCE_DIR "/tests/data/lm";

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolders)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

class FamiliesTest : public ::testing::TestWithParam<std::string> {
 protected:
  FamiliesTest() {
    for (auto& [name, tensor] : read_npz(kFolders / GetParam() / "truth.npz")) {
      (tensor.type() == DType::Int64 ? inputs_ : expected_)[name] = tensor;
    }
  }

  void expect_near(const Tensor& got, const Tensor& expected, const std::string& what) {
    ASSERT_EQ(got.shape(), expected.shape()) << what;
    for (int64_t i = 0; i < got.size(); ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_NEAR(got.as<float>()[at], expected.as<float>()[at], 1e-5 * (1 + std::fabs(expected.as<float>()[at])))
          << what << ", element " << i;
    }
  }

  TensorMap inputs_;
  TensorMap expected_;
};

TEST_P(FamiliesTest, OutputsAreThose) {
  Engine engine(LanguageModel::open(kFolders / GetParam()).whole());
  const std::vector<Tensor> outputs = engine.run(inputs_);
  ASSERT_EQ(outputs.size(), expected_.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = engine.model().graph.outputs[i].name;
    expect_near(outputs[i], expected_.at(name), name);
  }
}

/// First seven tokens, then three, then one after the other: with a cache the same logits come out.
TEST_P(FamiliesTest, CacheGivesTheSame) {
  const LanguageModel model = LanguageModel::open(kFolders / GetParam());
  const Facts& facts = model.facts();
  if (!facts.causal) return;
  // Rotary frequencies that change with the length cannot agree with those that the cache was made with.
  if (GetParam() == "phi3_long") return;
  Engine engine(model.whole({.cache = true}));
  const std::vector<int64_t> ids = inputs_.at("input_ids").to_int64();
  const Tensor& expected = expected_.at("logits");
  const int64_t samples = expected.shape()[0], tokens = expected.shape()[1];
  for (const bool planned : {false, true}) {
    KeyValueCache cache(engine.model().graph, facts, samples);
    int64_t done = 0;
    for (const int64_t count : {7, 3, 1, 1}) {
      std::vector<int64_t> part;
      for (int64_t s = 0; s < samples; ++s) {
        const auto begin = ids.begin() + s * tokens + done;
        part.insert(part.end(), begin, begin + count);
      }
      TensorMap inputs{{"input_ids", Tensor::of<int64_t>({samples, count}, part)}};
      cache.put_into(inputs);
      Frame frame = engine.start(inputs);
      if (!planned) frame.finish();
      const std::vector<Tensor> outputs = planned ? engine.run(inputs) : frame.outputs();
      for (int64_t s = 0; s < samples; ++s) {
        for (int64_t i = 0; i < count * facts.vocabulary; ++i) {
          const auto got = static_cast<size_t>(s * count * facts.vocabulary + i);
          const auto want = static_cast<size_t>((s * tokens + done) * facts.vocabulary + i);
          ASSERT_NEAR(outputs[0].as<float>()[got], expected.as<float>()[want],
                      1e-5 * (1 + std::fabs(expected.as<float>()[want])))
              << "sample " << s << ", from token " << done;
        }
      }
      cache.add(outputs);
      done += count;
    }
    ASSERT_EQ(done, tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesTest, ::testing::ValuesIn(cases()), [](const auto& row) { return row.param; });

TEST(Families, GgufFilesGiveTheSame) {
  int64_t files = 0;
  for (const auto& entry : fs::directory_iterator(KAON_SOURCE_DIR "/tests/data/lm_gguf")) {
    SCOPED_TRACE(entry.path().filename());
    TensorMap truth;
    for (auto& [name, tensor] : read_npz(kFolders / entry.path().stem() / "truth.npz")) truth[name] = tensor;
    Engine engine(LanguageModel::open(entry.path()).whole());
    const Tensor got = engine.run({{"input_ids", truth.at("input_ids")}}).front();
    const Tensor& expected = truth.at("logits");
    ASSERT_EQ(got.shape(), expected.shape());
    for (int64_t i = 0; i < got.size(); ++i) {
      const float want = expected.as<float>()[static_cast<size_t>(i)];
      ASSERT_NEAR(got.as<float>()[static_cast<size_t>(i)], want, 1e-5 * (1 + std::fabs(want))) << i;
    }
    ++files;
  }
  EXPECT_EQ(files, 6);
}

TEST(Families, EachHasACase) {
  std::set<std::string> seen;
  for (const std::string& name : cases()) seen.insert(LanguageModel::open(kFolders / name).family_name());
  for (const std::string& family : families().names()) EXPECT_TRUE(seen.contains(family)) << family;
}

/// A copy of a good folder to be spoilt.
class BadFolderTest : public ::testing::Test {
 protected:
  BadFolderTest() { fs::copy(kFolders / "mistral", folder_.path(), fs::copy_options::recursive); }

  void config(const std::string& from, const std::string& to) {
    std::string text = read_file(folder_ / "config.json");
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file(folder_ / "config.json", text.replace(at, from.size(), to));
  }

  void expect_refused(ErrorCode code, const std::string& message, const std::string& file) {
    try {
      LanguageModel::open(folder_.path()).whole();
      ADD_FAILURE() << "read without an error; expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      EXPECT_NE(error.where().find((file.empty() ? folder_.path() : folder_ / file).string()), std::string::npos)
          << error.what();
    }
  }

  const TemporaryFolder folder_;
};

TEST_F(BadFolderTest, UnknownFamilyListsThoseThereAre) {
  config("\"mistral\"", "\"mamba\"");
  expect_refused(ErrorCode::Unsupported, "the family 'mamba' is not known; bert, gemma2, gpt2, llama", "config.json");
}

TEST_F(BadFolderTest, MissingKeyIsNamed) {
  config("\"hidden_size\"", "\"hidden_sice\"");
  expect_refused(ErrorCode::InvalidConfig, "the key 'hidden_size' is missing", "config.json");
}

TEST_F(BadFolderTest, ValuesOutOfRange) {
  config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 200000");
  expect_refused(ErrorCode::InvalidConfig, "'num_hidden_layers' is 200000: an integer from 1 to 10000", "config.json");
  config("\"num_hidden_layers\": 200000", "\"num_hidden_layers\": \"2\"");
  expect_refused(ErrorCode::InvalidConfig, "'num_hidden_layers' is \"2\"", "config.json");
}

TEST_F(BadFolderTest, HeadsThatDoNotDivide) {
  config("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3");
  expect_refused(ErrorCode::InvalidConfig, "3 key heads do not divide 4 query heads", "config.json");
}

TEST_F(BadFolderTest, TensorOfTheWrongShape) {
  config("\"intermediate_size\": 24", "\"intermediate_size\": 25");
  expect_refused(
      ErrorCode::InvalidInput,
      "the tensor 'model.layers.0.mlp.gate_proj.weight' has the shape [24, 16]; the config makes it [25, 16]",
      "model.safetensors");
}

TEST_F(BadFolderTest, MissingTensor) {
  config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
  expect_refused(ErrorCode::InvalidInput, "the tensor 'model.layers.2.input_layernorm.weight' is missing", "");
}

TEST_F(BadFolderTest, TensorsThatAreNoFloats) {
  NamedTensors tensors = read_safetensors(folder_ / "model.safetensors");
  for (auto& [name, tensor] : tensors) {
    if (name == "model.norm.weight") tensor = Tensor::of<int32_t>({16}, std::vector<int32_t>(16));
  }
  write_safetensors(tensors, folder_ / "new");
  fs::rename(folder_ / "new", folder_ / "model.safetensors");
  expect_refused(ErrorCode::Unsupported, "the tensor 'model.norm.weight' is int32", "model.safetensors");
}

TEST_F(BadFolderTest, QuantizedCheckpoint) {
  config("\"model_type\"", "\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}, \"model_type\"");
  expect_refused(ErrorCode::Unsupported, "quantization_config", "config.json");
}

TEST_F(BadFolderTest, ConfigThatIsNone) {
  for (const char* text : {"", "{\"model_type\": ", "\xff"}) {
    write_file(folder_ / "config.json", text);
    expect_refused(ErrorCode::InvalidConfig, "is not JSON", "config.json");
  }
  write_file(folder_ / "config.json", "[]");
  expect_refused(ErrorCode::CorruptFile, "no JSON object", "config.json");
  write_file(folder_ / "config.json", R"({"model_type": "llama", "model_type": "opt"})");
  expect_refused(ErrorCode::InvalidConfig, "the key 'model_type' stands twice", "config.json");
  write_file(folder_ / "config.json", "{}");
  expect_refused(ErrorCode::InvalidConfig, "the key 'model_type' is missing", "config.json");
}

TEST_F(BadFolderTest, NoFolderAtAll) {
  fs::remove(folder_ / "config.json");
  expect_refused(ErrorCode::InvalidInput, "a folder with a config.json or a .gguf file is needed", "");
}

TEST(Rope, OldAndNewSpellings) {
  const auto rope = [](const char* text) { return read_rope(Config(nlohmann::json::parse(text), "test"), 8); };
  const Rope fresh =
      rope(R"({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "llama3", "rope_theta": 500,
    "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16}})");
  const Rope old = rope(R"({"max_position_embeddings": 64, "rope_theta": 500.0, "rope_scaling": {"type": "llama3",
    "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16}})");
  EXPECT_EQ(fresh.frequencies, old.frequencies);
  EXPECT_NE(fresh.frequencies, rope(R"({"rope_theta": 500.0, "rope_scaling": null})").frequencies);
  EXPECT_THROW(rope(R"({"rope_scaling": {"rope_type": "yarn", "factor": 2}})"), Error);
  EXPECT_THROW(rope(R"({"rope_scaling": {"rope_type": "linear"}})"), Error);
  EXPECT_THROW(rope(R"({"rope_theta": -1})"), Error);
}

}  // namespace
}  // namespace kaon::lm
