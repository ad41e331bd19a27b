#include "io/safetensors/checkpoint.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "io/files_test.h"
#include "io/safetensors/safetensors.h"
#include "io/safetensors/safetensors_draft.h"

namespace kaon {
namespace {

/// A folder with two shards, one tensor in each, and the given index.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    write_safetensors({{"a", Tensor::scalar(1.0F)}}, folder_ / "1.safetensors");
    write_safetensors({{"b", Tensor::scalar(2.0F)}}, folder_ / "2.safetensors");
  }

  void index(const std::string& weight_map) {
    write_file(folder_ / "model.safetensors.index.json",
               R"({"metadata":{"total_size":8},"weight_map":)" + weight_map + "}");
  }

  void expect_refused(ErrorCode code, const std::string& message) {
    try {
      read_checkpoint(folder_.path());
      ADD_FAILURE() << "read without an error; expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      EXPECT_NE(error.where().find(folder_.path().string()), std::string::npos) << error.what();
    }
  }

  const TemporaryFolder folder_;
};

TEST_F(CheckpointTest, ShardsOfTheIndex) {
  index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  write_file(folder_ / "other.safetensors", "not looked at");
  const auto tensors = read_checkpoint(folder_.path());
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors.at("b").tensor.as<float>()[0], 2);
  EXPECT_EQ(tensors.at("b").file.filename(), "2.safetensors");
}

TEST_F(CheckpointTest, TensorsAreCopiedFromFileToFile) {
  std::vector<float> many(100'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i);
  write_safetensors({{"bytes", Tensor::of({3}, std::vector<uint8_t>{7, 8, 9})},
                     {"many", Tensor::of({100'000}, many)},
                     {"none", Tensor::of({0}, std::vector<float>{})}},
                    folder_ / "model.safetensors");
  const auto tensors = read_checkpoint(folder_.path());
  ASSERT_EQ(tensors.size(), 3U);
  SafetensorsDraft draft(folder_ / "copy", {{"x", DType::Float32, {100'000}},
                                            {"y", DType::UInt8, {3}},
                                            {"z", DType::Float32, {0}},
                                            {"lost", DType::UInt8, {3}}});
  draft.copy("x", tensors.at("many"));
  draft.copy("y", tensors.at("bytes"));
  draft.copy("z", tensors.at("none"));
  CheckpointTensor lost = tensors.at("bytes");
  lost.file = folder_ / "gone";  // what is mapped serves where the kernel cannot copy
  draft.copy("lost", lost);
  EXPECT_THROW(draft.copy("y", tensors.at("many")), Error);
  draft.finish();
  std::map<std::string, Tensor> read;
  for (auto& [name, tensor] : read_safetensors(folder_ / "copy")) read[name] = tensor;
  EXPECT_EQ(read.at("x").to_float(), many);
  EXPECT_EQ(read.at("y").to_int64(), (std::vector<int64_t>{7, 8, 9}));
  EXPECT_EQ(read.at("lost").to_int64(), (std::vector<int64_t>{7, 8, 9}));
}

TEST_F(CheckpointTest, WithoutAnIndex) {
  EXPECT_EQ(read_checkpoint(folder_.path()).size(), 2U);
  write_safetensors({{"c", Tensor::scalar(3.0F)}}, folder_ / "model.safetensors");
  const auto tensors = read_checkpoint(folder_.path());
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors.begin()->first, "c");
}

TEST_F(CheckpointTest, NoWeightsAtAll) {
  std::filesystem::remove(folder_ / "1.safetensors");
  std::filesystem::remove(folder_ / "2.safetensors");
  expect_refused(ErrorCode::InvalidInput, "no weights");
}

TEST_F(CheckpointTest, MissingShardIsNamed) {
  index(R"({"a":"1.safetensors","b":"3.safetensors"})");
  expect_refused(ErrorCode::Io, "the shard '3.safetensors' that it names is not in the folder");
}

TEST_F(CheckpointTest, IndexThatPointsOutside) {
  for (const char* file : {"../1.safetensors", "/etc/passwd", "..", "", "sub/1.safetensors", "a\\\\b"}) {
    index(fmt::format(R"({{"a":"{}"}})", file));
    expect_refused(ErrorCode::CorruptFile, "weight_map, 'a': the name of a file in the same folder is needed");
  }
}

TEST_F(CheckpointTest, IndexAndShardsDisagree) {
  index(R"({"a":"1.safetensors","b":"1.safetensors"})");
  expect_refused(ErrorCode::CorruptFile, "the tensor 'b' is not in '1.safetensors'");
  index(R"({"a":"2.safetensors","b":"1.safetensors"})");
  expect_refused(ErrorCode::CorruptFile, "the tensor 'a' is not in '2.safetensors'");
  write_safetensors({{"b", Tensor::scalar(2.0F)}, {"c", Tensor::scalar(3.0F)}}, folder_ / "2.safetensors");
  index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  expect_refused(ErrorCode::CorruptFile, "the tensor 'c' is not in the index");
  write_safetensors({{"a", Tensor::scalar(2.0F)}, {"b", Tensor::scalar(3.0F)}}, folder_ / "2.safetensors");
  expect_refused(ErrorCode::CorruptFile, "the tensor 'a' is also in 1.safetensors");
}

TEST_F(CheckpointTest, IndexThatIsNone) {
  for (const char* text : {"", "{", "[]", "3", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})"}) {
    write_file(folder_ / "model.safetensors.index.json", text);
    expect_refused(ErrorCode::CorruptFile, "model.safetensors.index.json");
  }
}

}  // namespace
}  // namespace kaon
