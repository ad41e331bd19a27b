#include <gtest/gtest.h>

#include "data/dataset.h"
#include "data/expect_test.h"
#include "io/files_test.h"

namespace kaon {
namespace {

/// A folder with a tokenizer whose numbers are 0 for 'a', 1 for 'b' … and 9 for a line's end; "ab" is 10.
class Texts : public testing::Test {
 protected:
  Texts() {
    write_file(folder_ / "tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3,
      "e": 4, "f": 5, "g": 6, "h": 7, "i": 8, "\n": 9, "ab": 10}, "merges": ["a b"]},
      "post_processor": {"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 1]}})");
    options_.tokenizer = [this] { return open_tokenizer(folder_.path()); };
  }
  std::unique_ptr<Dataset> open(const std::string& json) {
    write_file(folder_ / "d.json", json);
    return open_dataset(folder_ / "d.json", inputs_, options_);
  }
  void refused(ErrorCode code, const std::string& message, const std::string& json) {
    expect_error(code, message, [&] { open(json); });
  }
  using Row = std::vector<int64_t>;

  TemporaryFolder folder_;
  DatasetOptions options_;
  std::vector<ValueInfo> inputs_ = {input_of("input_ids", DType::Int64, {-1, -1})};
};

TEST_F(Texts, WindowsAndNextTokens) {
  write_file(folder_ / "t.txt", "abcdefghi");  // 10 2 3 4 5 6 7 8, without special tokens
  const auto data = open(R"({"text": "t.txt", "window": 3})");
  ASSERT_EQ(data->size(), 2);  // the last two tokens fill no window
  EXPECT_TRUE(data->has_labels());
  const Batch batch = data->read(0, 2);
  EXPECT_EQ(batch.inputs.at("input_ids").shape(), (Shape{2, 3}));
  EXPECT_EQ(values_of<int64_t>(batch.inputs.at("input_ids")), (Row{10, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values_of<int64_t>(batch.labels), (Row{2, 3, kIgnoredLabel, 5, 6, kIgnoredLabel}));
  EXPECT_EQ(values_of<int64_t>(data->read(1, 1).inputs.at("input_ids")), (Row{4, 5, 6}));
}

TEST_F(Texts, StrideFirstAndLimit) {
  write_file(folder_ / "t.txt", "abcdefghi");
  EXPECT_EQ(open(R"({"text": "t.txt", "window": 4, "stride": 2})")->size(), 3);
  const auto data = open(R"({"text": "t.txt", "window": 4, "stride": 2, "first": 1, "limit": 1})");
  ASSERT_EQ(data->size(), 1);
  EXPECT_EQ(values_of<int64_t>(data->read(0, 1).inputs.at("input_ids")), (Row{3, 4, 5, 6}));
  options_.limit = 2;
  EXPECT_EQ(open(R"({"text": "t.txt", "window": 2, "limit": 1})")->size(), 2);
}

TEST_F(Texts, LinesOfJsonAndSeveralFiles) {
  write_file(folder_ / "one.jsonl", "{\"text\": \"ab\", \"other\": \"i\"}\n\n{\"text\": \"c\", \"other\": \"h\"}\n");
  write_file(folder_ / "two.txt", "de");
  const auto tokens = [&](const std::string& json) {
    return values_of<int64_t>(open(json)->read(0, 1).inputs.at("input_ids"));
  };
  EXPECT_EQ(tokens(R"({"text": ["one.jsonl", "two.txt"], "window": 6})"), (Row{10, 9, 9, 2, 3, 4}));
  EXPECT_EQ(tokens(R"({"text": "one.jsonl", "key": "other", "window": 4})"), (Row{8, 9, 9, 7}));
}

TEST_F(Texts, FilesThemselves) {
  write_file(folder_ / "t.txt", std::string(1030, 'c'));
  const auto data = open_dataset(folder_ / "t.txt", inputs_, options_);
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(data->read(0, 1).labels.shape(), (Shape{1, 512}));
}

TEST_F(Texts, InputsBesideTheTokens) {
  write_file(folder_ / "t.txt", "cdef");
  for (const char* name : {"attention_mask", "position_ids", "token_type_ids"}) {
    inputs_.push_back(input_of(name, DType::Int64, {-1, -1}));
  }
  const Batch batch = open(R"({"text": "t.txt", "window": 2})")->read(0, 2);
  EXPECT_EQ(values_of<int64_t>(batch.inputs.at("input_ids")), (Row{2, 3, 4, 5}));
  EXPECT_EQ(values_of<int64_t>(batch.inputs.at("attention_mask")), (Row{1, 1, 1, 1}));
  EXPECT_EQ(values_of<int64_t>(batch.inputs.at("position_ids")), (Row{0, 1, 0, 1}));
  EXPECT_EQ(values_of<int64_t>(batch.inputs.at("token_type_ids")), (Row{0, 0, 0, 0}));
  inputs_.push_back(input_of("cache", DType::Float32, {-1}));
  refused(ErrorCode::InvalidInput, "cache", R"({"text": "t.txt", "window": 2})");
}

TEST_F(Texts, WhatIsRefused) {
  write_file(folder_ / "t.txt", "cdef");
  write_file(folder_ / "bad.txt", "cd\xFF");
  write_file(folder_ / "bad.jsonl", "{\"text\": \"c\"}\n{\"text\": 1}\n");
  refused(ErrorCode::InvalidInput, "the text has 4 tokens, which do not fill a window of 512", R"({"text": "t.txt"})");
  refused(ErrorCode::InvalidInput, "bad.txt: text: is not UTF-8: byte 2 (0xFF)", R"({"text": "bad.txt"})");
  refused(ErrorCode::CorruptFile, "line 2 is no JSON object with a text \"text\"", R"({"text": "bad.jsonl"})");
  refused(ErrorCode::Io, "none.txt", R"({"text": "none.txt"})");
  refused(ErrorCode::InvalidConfig, "windw", R"({"text": "t.txt", "windw": 2})");
  refused(ErrorCode::InvalidConfig, "\"window\" must be", R"({"text": "t.txt", "window": 1})");
  refused(ErrorCode::InvalidConfig, "\"text\" must be", R"({"text": []})");
  options_.tokenizer = nullptr;
  refused(ErrorCode::InvalidInput, "needs the model's tokenizer", R"({"text": "t.txt", "window": 2})");
}

}  // namespace
}  // namespace kaon
