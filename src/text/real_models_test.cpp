// Tokenizers of the real models beside the checkout.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "text/tokenizer.h"

namespace kaon {
namespace {

const std::filesystem::path kModels = KAON_SOURCE_DIR "/../shared/models";
const std::filesystem::path kTexts = KAON_SOURCE_DIR "/../shared/data/text";

#define NEEDS_MODELS() \
  if (!std::filesystem::exists(kModels)) GTEST_SKIP() << "../shared is not beside the checkout"

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> all_texts() {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(kTexts)) {
    if (entry.path().extension() == ".txt") texts.push_back(read_file(entry.path()));
  }
  return texts;
}

class Folders : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Folders, testing::Values("opt-17m", "llama-9m", "gpt2-5m"));

TEST_P(Folders, TokensOfTheTruth) {
  NEEDS_MODELS();
  const TokenizerPtr tokenizer = open_tokenizer(kModels / GetParam());
  const auto truth = nlohmann::json::parse(read_file(kModels / GetParam() / "tokens.json"));
  EXPECT_GE(truth.size(), 6U);
  for (const auto& [text, ids] : truth.items()) {
    EXPECT_EQ(tokenizer->encode(text), ids.get<TokenIds>()) << text;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST_P(Folders, TextSurvives) {
  NEEDS_MODELS();
  const TokenizerPtr tokenizer = open_tokenizer(kModels / GetParam());
  for (const std::string& text : all_texts()) {
    const TokenIds ids = tokenizer->encode(text, false);
    EXPECT_TRUE(tokenizer->decode(ids) == text);
    StreamDecoder stream(tokenizer);
    std::string streamed;
    for (size_t i = 0; i < std::min<size_t>(ids.size(), 20000); ++i) streamed += stream.add(ids[i]);
    streamed += stream.finish();
    EXPECT_TRUE(text.starts_with(streamed.substr(0, streamed.size() - 3)));
    EXPECT_GT(streamed.size(), std::min<size_t>(ids.size(), 20000));
  }
}

TEST(RealModels, TokenizerModelIsAsTokenizerJson) {
  NEEDS_MODELS();
  const TokenizerPtr one = open_tokenizer(kModels / "llama-9m");
  const TokenizerPtr other = open_tokenizer(kModels / "llama-9m" / "tokenizer.model");
  EXPECT_EQ(one->size(), other->size());
  EXPECT_EQ(one->bos(), other->bos());
  EXPECT_EQ(one->eos(), other->eos());
  for (const std::string& text : all_texts()) EXPECT_TRUE(one->encode(text) == other->encode(text));
}

/// Without the cut at word starts, all of a text is one word: the heap must give the same.
TEST(RealModels, CuttingAtWordsChangesNothing) {
  NEEDS_MODELS();
  auto json = nlohmann::json::parse(read_file(kModels / "llama-9m" / "tokenizer.json"));
  const std::string path = testing::TempDir() + "kaon_no_cut_" + std::to_string(::getpid()) + ".json";
  // A piece with a mark within, which no text here holds, forbids the cut.
  auto& model = json["model"];
  model["vocab"]["q\u2581"] = model["vocab"].size();
  model["merges"].push_back({"q", "\u2581"});
  std::ofstream(path) << json;
  const TokenizerPtr cut = open_tokenizer(kModels / "llama-9m");
  const TokenizerPtr whole = open_tokenizer(path);
  for (std::string text : all_texts()) {
    std::erase(text, 'q');
    EXPECT_TRUE(cut->encode(text) == whole->encode(text));
  }
  std::filesystem::remove(path);
}

class Vocabularies : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Vocabularies, testing::Values("bert-bge", "falcon", "gpt-2", "llama-spm", "starcoder"));

TEST_P(Vocabularies, TextsOfLlamaCpp) {
  NEEDS_MODELS();
  const std::string path = (kModels / "vocab" / (std::string(GetParam()) + ".gguf")).string();
  const TokenizerPtr tokenizer = open_tokenizer(path);
  const std::string mark = "\n__ggml_vocab_test__\n";
  const std::string texts = read_file(path + ".inp");
  std::istringstream lines(read_file(path + ".out"));
  size_t begin = 0;
  int count = 0;
  while (begin != std::string::npos) {
    const size_t end = texts.find(mark, begin);
    const std::string text = texts.substr(begin, end == std::string::npos ? end : end - begin);
    begin = end == std::string::npos ? end : end + mark.size();
    std::string line;
    if (!std::getline(lines, line)) break;
    std::istringstream numbers(line);
    TokenIds expected;
    for (int32_t id = 0; numbers >> id;) expected.push_back(id);
    EXPECT_EQ(tokenizer->encode(text, false), expected) << '"' << text << '"';
    ++count;
  }
  EXPECT_EQ(count, 46);
}

}  // namespace
}  // namespace kaon
