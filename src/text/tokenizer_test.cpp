#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/sentencepiece_file.h"
#include "text/tokenizer_json.h"
#include "text/vocabulary.h"

namespace kaon {
namespace {

using nlohmann::json;

/// A byte-level BPE of single letters, with merges, and whatever `more` adds or replaces.
json small(const json& more = json::object()) {
  json document = {{"model",
                    {{"type", "BPE"},
                     {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}, {"Ġ", 5}, {"<s>", 6}}},
                     {"merges", {"a b", "ab c"}}}}};
  document.update(more, true);
  return document;
}

std::shared_ptr<Tokenizer> make(const json& document) {
  // As read from a file, where numbers have the types that the parser gives them.
  return std::make_shared<Tokenizer>(parse_tokenizer_json(json::parse(document.dump()), "t.json"));
}

void refused(const json& document, ErrorCode code, const std::string& message) {
  try {
    make(document);
    ADD_FAILURE() << "no error; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST(Tokenizer, MergesInOrder) {
  const auto tokenizer = make(small());
  EXPECT_EQ(tokenizer->encode("abcab"), (TokenIds{4, 3}));
  EXPECT_EQ(tokenizer->encode("bac"), (TokenIds{1, 0, 2}));
  EXPECT_EQ(tokenizer->encode("axb"), (TokenIds{3})) << "what is no piece is left out before merging";
  EXPECT_EQ(tokenizer->encode(""), TokenIds());
  EXPECT_EQ(tokenizer->size(), 7);
  EXPECT_EQ(tokenizer->token(4), "abc");
  EXPECT_EQ(tokenizer->find("ab"), 3);
  EXPECT_EQ(tokenizer->find("x"), std::nullopt);
}

/// Words longer than the array of the short way take the heap.
TEST(Tokenizer, LongWordsAreMergedAlike) {
  const auto tokenizer = make(small());
  std::string text;
  TokenIds expected;
  for (int i = 0; i < 1000; ++i) {
    text += i % 3 == 0 ? "abc" : "abb";
    expected.push_back(i % 3 == 0 ? 4 : 3);
    if (i % 3 != 0) expected.push_back(1);
  }
  EXPECT_EQ(tokenizer->encode(text), expected);
}

/// More words than are remembered, and each again.
TEST(Tokenizer, ManyWordsComeAgain) {
  constexpr int kLetters = 10;
  constexpr int kWords = 59049;  // 3^10
  const auto tokenizer = make(small());
  for (int i = 0; i < 2 * kWords; ++i) {
    std::string word;
    for (int k = 0, rest = i % kWords; k < kLetters; ++k, rest /= 3) word += "abc"[rest % 3];
    TokenIds expected;
    for (size_t at = 0; at < word.size();) {
      const bool ab = word.compare(at, 2, "ab") == 0, abc = word.compare(at, 3, "abc") == 0;
      expected.push_back(abc ? 4 : ab ? 3 : word[at] - 'a');
      at += abc ? 3 : ab ? 2 : 1;
    }
    ASSERT_EQ(tokenizer->encode(word), expected) << word;
  }
}

TEST(Tokenizer, AddedTokens) {
  const json added = {{"added_tokens",
                       {{{"id", 6}, {"content", "<s>"}, {"special", true}, {"lstrip", true}},
                        {{"id", 7}, {"content", "bb"}, {"single_word", true}},
                        {{"id", 8}, {"content", "<s>>"}, {"rstrip", true}, {"normalized", false}}}}};
  const auto tokenizer = make(small(added));
  EXPECT_EQ(tokenizer->encode("a  <s>b"), (TokenIds{0, 6, 1}));
  EXPECT_EQ(tokenizer->encode("<s>>  b"), (TokenIds{8, 1})) << "the longest wins";
  EXPECT_EQ(tokenizer->encode("abb bb bbb"), (TokenIds{3, 1, 7, 1, 1, 1}));
  EXPECT_TRUE(tokenizer->is_special(6));
  EXPECT_FALSE(tokenizer->is_special(7));
  EXPECT_EQ(tokenizer->decode(TokenIds{0, 6, 7}), "a bb");
  EXPECT_EQ(tokenizer->decode(TokenIds{0, 6, 7}, false), "a <s> bb");
}

TEST(Tokenizer, SpecialTokensAround) {
  const json around = {{"post_processor", {{"type", "RobertaProcessing"}, {"cls", {"<s>", 6}}, {"sep", {"c", 2}}}}};
  const auto tokenizer = make(small(around));
  EXPECT_EQ(tokenizer->encode("ab"), (TokenIds{6, 3, 2}));
  EXPECT_EQ(tokenizer->encode("ab", false), (TokenIds{3}));
}

TEST(Tokenizer, TextThatIsNotUtf8) {
  const auto tokenizer = make(small());
  try {
    tokenizer->encode("ab\xC3(");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
    EXPECT_NE(std::string(error.what()).find("is not UTF-8: byte 2 (0xC3)"), std::string::npos) << error.what();
  }
  EXPECT_THROW(tokenizer->decode(TokenIds{99}), Error);
  EXPECT_THROW(tokenizer->decode(TokenIds{-1}), Error);
}

/// A character of three bytes comes out once it is whole, one that never becomes whole at the end.
TEST(Tokenizer, StreamsWholeCharacters) {
  const auto tokenizer = make({{"model",
                                {{"type", "BPE"},
                                 {"vocab", {{"<0xE2>", 0}, {"<0x82>", 1}, {"<0xAC>", 2}, {"a", 3}, {"▁b", 4}}},
                                 {"merges", json::array()}}},
                               {"decoder",
                                {{"type", "Sequence"},
                                 {"decoders",
                                  {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                                   {{"type", "ByteFallback"}},
                                   {{"type", "Fuse"}},
                                   {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}}});
  StreamDecoder stream(tokenizer);
  std::vector<std::string> parts;
  for (const int32_t id : {4, 4, 0, 1, 2, 3, 4, 0}) parts.push_back(stream.add(id));
  parts.push_back(stream.finish());
  EXPECT_EQ(parts, (std::vector<std::string>{"b", " b", "", "", "€", "a", " b", "", "\uFFFD"}));
}

TEST(TokenizerJson, UnknownPartsAreNamed) {
  refused(small({{"normalizer", {{"type", "Sparkle"}}}}), ErrorCode::Unsupported, "the normalizer 'Sparkle'");
  refused(small({{"pre_tokenizer", {{"type", "UnicodeScripts"}}}}), ErrorCode::Unsupported,
          "t.json, pre_tokenizer: the pre-tokenizer 'UnicodeScripts'");
  refused(small({{"decoder", {{"type", "CTC"}}}}), ErrorCode::Unsupported, "the decoder 'CTC'");
  refused(small({{"post_processor", {{"type", "X"}}}}), ErrorCode::Unsupported, "the post-processor 'X'");
  refused(small({{"model", {{"type", "WordLevel"}}}}), ErrorCode::Unsupported, "the model 'WordLevel'");
  refused(small({{"sparkle", 1}}), ErrorCode::Unsupported, "\"sparkle\"");
  refused(small({{"normalizer", {{"type", "NFC"}, {"deep", true}}}}), ErrorCode::Unsupported, "\"deep\"");
  refused(small({{"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "X"}}}}}}}),
          ErrorCode::Unsupported, "normalizers[1]: the normalizer 'X'");
}

TEST(TokenizerJson, WrongPartsAreNamed) {
  refused(json::array(), ErrorCode::InvalidConfig, "must be a JSON object");
  refused(json::object(), ErrorCode::InvalidConfig, "\"model\"");
  refused(small({{"model", {{"merges", {"a x"}}}}}), ErrorCode::InvalidConfig, "'ax' is not in the vocabulary");
  refused(small({{"model", {{"merges", {"abc"}}}}}), ErrorCode::InvalidConfig, "element 0 is none");
  refused(small({{"model", {{"vocab", {{"a", 1}, {"z", 1}}}}}}), ErrorCode::InvalidConfig, "the same number 1");
  refused(small({{"model", {{"vocab", {{"a", 1 << 30}}}}}}), ErrorCode::InvalidConfig, "the number of 'a'");
  refused(small({{"model", {{"unk_token", "x"}}}}), ErrorCode::InvalidConfig, "'x' is not in the vocabulary");
  refused(small({{"model", {{"dropout", 0.1}}}}), ErrorCode::Unsupported, "dropout");
  refused(small({{"added_tokens", {{{"id", 9}, {"content", "ab"}}}}}), ErrorCode::InvalidConfig,
          "'ab' has the number 9 here and 3 in the vocabulary");
  refused(small({{"added_tokens", {{{"id", 1 << 30}, {"content", "x"}}}}}), ErrorCode::InvalidConfig, "\"id\"");
}

TEST(TokenizerJson, RegularExpressionsThatMeanSomethingElse) {
  for (const char* pattern : {"[a&&b]", "[a[b]]", "a{2}+", "\\h", "(*SKIP)a", "("}) {
    const json split = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    refused(small({{"pre_tokenizer", split}}), ErrorCode::Unsupported, "the regular expression '");
  }
}

TEST(Sentencepiece, BrokenFiles) {
  const auto error = [](std::string_view bytes) -> std::string {
    try {
      read_sentencepiece(std::as_bytes(std::span(bytes)), "t.model");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::CorruptFile);
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(error("").find("has no pieces"), std::string::npos);
  EXPECT_NE(error("\x0A\x05\x0A").find("cut short"), std::string::npos);
  EXPECT_NE(error("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF").find("malformed"), std::string::npos);
  EXPECT_NE(error(std::string_view("\x0A\x02\x0A\x00", 4)).find("piece 0 is empty"), std::string::npos);
  EXPECT_NE(error("\x0A\x03\x0A\x01\xFF").find("not UTF-8"), std::string::npos);
}

/// A table whose only key is the first byte of 'é' replaces nothing, and ends.
TEST(Charsmap, KeysThatEndWithinACharacter) {
  std::vector<uint32_t> units(256);
  units[0] = 1 << 10;                     // the children of the root lie at 1 ^ byte
  units[0xC2] = 1 << 10 | 1 << 8 | 0xC3;  // a key ends here; its value lies at 0xC2 ^ 1
  units[0xC3] = 1U << 31;
  std::string bytes(4 + units.size() * 4, '\0');
  const auto size = static_cast<uint32_t>(units.size() * 4);
  std::memcpy(bytes.data(), &size, 4);
  std::memcpy(bytes.data() + 4, units.data(), size);
  bytes += std::string("x\0", 2);
  for (const CharsmapUse use : {CharsmapUse::LongestMatch, CharsmapUse::Graphemes}) {
    std::string text = "a\u00E9b";
    make_charsmap(bytes, use, "t.model")->apply(text);
    EXPECT_EQ(text, "a\u00E9b");
  }
}

TEST(Vocabulary, WhatIsRefused) {
  const auto error = [](Vocabulary vocabulary) -> std::string {
    try {
      make_tokenizer(std::move(vocabulary), "v.gguf");
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const std::vector<std::string> tokens = {"a", "b", "ab"};
  EXPECT_NE(error({.model = "gpt2"}).find("tokenizer.ggml.tokens is missing"), std::string::npos);
  EXPECT_NE(error({.model = "rwkv", .tokens = tokens}).find("'rwkv'"), std::string::npos);
  EXPECT_NE(error({.model = "llama", .tokens = tokens}).find("scores is missing"), std::string::npos);
  EXPECT_NE(error({.model = "llama", .tokens = tokens, .scores = {1}}).find("1 elements for 3"), std::string::npos);
  EXPECT_NE(error({.model = "gpt2", .pre = "new", .tokens = tokens, .merges = {"a b"}}).find("pre is 'new'; known are"),
            std::string::npos);
  EXPECT_NE(error({.model = "gpt2", .tokens = tokens, .merges = {"a b"}, .bos = 9}).find("bos_token_id is 9"),
            std::string::npos);
  EXPECT_EQ(error({.model = "gpt2", .tokens = tokens, .merges = {"a b"}, .bos = 0}), "no error");
}

}  // namespace
}  // namespace kaon
