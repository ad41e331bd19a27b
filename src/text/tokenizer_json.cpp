#include "text/tokenizer_json.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/bpe.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace kaon {

using nlohmann::json;

namespace {

/// Numbers without a piece are rare; a file that asks for many asks for memory.
constexpr int64_t kMostGaps = 100000;

using Merge = std::pair<std::string, std::string>;

std::vector<Merge> parse_merges(const JsonPart& part) {
  std::vector<Merge> merges;
  for (const json& merge : part.list("merges")) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      part.wrong("merges", fmt::format("a list of pairs, and element {} is none", merges.size()));
    }
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

/// The number of the piece that `key` names; -1 where there is no such key.
int32_t parse_unknown(const JsonPart& part, const char* key, const Vocab& vocab) {
  if (!part.has(key)) return -1;
  const std::string name = part.text(key);
  const int32_t id = vocab.find(name);
  if (id < 0) fail(ErrorCode::InvalidConfig, part.where(), "\"{}\": '{}' is not in the vocabulary", key, name);
  return id;
}

std::unique_ptr<WordModel> parse_bpe(const JsonPart& part, bool raw_bytes) {
  part.check_keys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                   "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (part.has("dropout") && part.value()["dropout"] != 0.0) {
    fail(ErrorCode::Unsupported, part.where(), "\"dropout\" makes a tokenizer random; only null is accepted");
  }
  Vocab vocab = parse_vocab(part.value().value("vocab", json()), part.where());
  BpeOptions options;
  options.unknown = parse_unknown(part, "unk_token", vocab);
  options.fuse_unknown = part.flag("fuse_unk", false);
  options.byte_fallback = part.flag("byte_fallback", false);
  options.whole_words = part.flag("ignore_merges", false);
  options.continuing_prefix = part.text("continuing_subword_prefix", "");
  options.end_suffix = part.text("end_of_word_suffix", "");
  options.bytes = raw_bytes;
  return make_bpe(std::move(vocab), parse_merges(part), options, part.where());
}

std::unique_ptr<WordModel> parse_wordpiece(const JsonPart& part) {
  part.check_keys({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  Vocab vocab = parse_vocab(part.value().value("vocab", json()), part.where());
  WordPieceOptions options;
  options.unknown = parse_unknown(part, "unk_token", vocab);
  if (options.unknown < 0) part.wrong("unk_token", "a piece of the vocabulary");
  options.next_prefix = part.text("continuing_subword_prefix", "##");
  options.longest_word = part.has("max_input_chars_per_word")
                             ? part.integer("max_input_chars_per_word", 1, int64_t{1} << 31)
                             : options.longest_word;
  return make_wordpiece(std::move(vocab), options);
}

std::unique_ptr<WordModel> parse_unigram(const JsonPart& part) {
  part.check_keys({"type", "unk_id", "vocab", "byte_fallback"});
  std::vector<std::string> pieces;
  std::vector<double> scores;
  for (const json& row : part.list("vocab")) {
    const bool fits = row.is_array() && row.size() == 2 && row[0].is_string() && row[1].is_number() &&
                      std::isfinite(row[1].get<double>());
    if (!fits) part.wrong("vocab", fmt::format("a list of [piece, score], and element {} is none", pieces.size()));
    pieces.push_back(row[0].get<std::string>());
    scores.push_back(row[1].get<double>());
  }
  if (pieces.empty()) part.wrong("vocab", "a list of [piece, score] that is not empty");
  UnigramOptions options;
  if (part.has("unk_id")) options.unknown = static_cast<int32_t>(part.integer("unk_id", 0, std::ssize(pieces) - 1));
  options.byte_fallback = part.flag("byte_fallback", false);
  const std::vector<bool> usable(pieces.size(), true);
  return make_unigram(Vocab(std::move(pieces)), std::move(scores), usable, options);
}

std::string model_type(const JsonPart& part) {
  if (part.has("type")) return part.type();
  // Files of old versions do not say.
  if (part.has("merges")) return "BPE";
  if (part.has("max_input_chars_per_word")) return "WordPiece";
  return part.has("unk_id") ? "Unigram" : part.type();
}

std::vector<AddedToken> parse_added_tokens(const JsonPart& root, const Vocab& vocab) {
  std::vector<AddedToken> tokens;
  if (!root.has("added_tokens")) return tokens;
  const auto parts = root.parts("added_tokens");
  const int64_t most = vocab.size() + std::ssize(parts) + kMostGaps;
  for (const JsonPart& part : parts) {
    part.check_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.id = static_cast<int32_t>(part.integer("id", 0, most));
    token.content = part.text("content");
    token.single_word = part.flag("single_word", false);
    token.lstrip = part.flag("lstrip", false);
    token.rstrip = part.flag("rstrip", false);
    token.special = part.flag("special", false);
    token.normalized = part.flag("normalized", !token.special);
    const int32_t known = vocab.find(token.content);
    if (known >= 0 && known != token.id) {
      fail(ErrorCode::InvalidConfig, part.where(), "'{}' has the number {} here and {} in the vocabulary",
           token.content, token.id, known);
    }
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

struct Around {
  TokenIds before, after;
};

/// ["</s>", 2]
int32_t parse_pair(const JsonPart& part, const char* key) {
  const json& pair = part.list(key);
  const bool fits = pair.size() == 2 && pair[1].is_number_unsigned() && pair[1].get<uint64_t>() < (uint64_t{1} << 31);
  if (!fits) part.wrong(key, "a token and its number");
  return pair[1].get<int32_t>();
}

void parse_template(const JsonPart& part, Around& around) {
  part.check_keys({"type", "single", "pair", "special_tokens"});
  TokenIds before, after;
  bool seen = false;
  for (const JsonPart& element : part.parts("single")) {
    element.check_keys({"SpecialToken", "Sequence"});
    if (element.has("Sequence")) {
      if (seen || element.part("Sequence").text("id") != "A") part.wrong("single", "a template with one sequence A");
      seen = true;
      continue;
    }
    const std::string name = element.part("SpecialToken").text("id");
    const JsonPart tokens = part.part("special_tokens").part(name.c_str());
    for (const json& id : tokens.list("ids")) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >> 31 != 0) tokens.wrong("ids", "a list of numbers");
      (seen ? after : before).push_back(id.get<int32_t>());
    }
  }
  if (!seen) part.wrong("single", "a template with one sequence A");
  around.before.insert(around.before.begin(), before.begin(), before.end());
  around.after.insert(around.after.end(), after.begin(), after.end());
}

void parse_post_processor(const JsonPart& part, Around& around) {
  const std::string type = part.type();
  if (type == "TemplateProcessing") {
    parse_template(part, around);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    part.check_keys({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    around.before.insert(around.before.begin(), parse_pair(part, "cls"));
    around.after.push_back(parse_pair(part, "sep"));
  } else if (type == "ByteLevel") {
    part.check_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "Sequence") {
    part.check_keys({"type", "processors"});
    for (const JsonPart& one : part.parts("processors")) {
      if (one.type() == "Sequence") fail(ErrorCode::Unsupported, one.where(), "a sequence within a sequence");
      parse_post_processor(one, around);
    }
  } else {
    part.unknown_type("post-processor");
  }
}

}  // namespace

Vocab parse_vocab(const json& object, const std::string& where) {
  if (!object.is_object()) fail(ErrorCode::InvalidConfig, where, "\"vocab\" must be an object of pieces and numbers");
  std::vector<std::string> pieces(object.size());
  for (const auto& [piece, id] : object.items()) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < object.size() + kMostGaps;
    if (!fits) {
      fail(ErrorCode::InvalidConfig, where, "\"vocab\": the number of '{}' must be from 0 to some {}", piece,
           object.size());
    }
    const auto at = id.get<size_t>();
    if (at >= pieces.size()) pieces.resize(at + 1);
    if (!pieces[at].empty()) {
      fail(ErrorCode::InvalidConfig, where, "\"vocab\": '{}' and '{}' have the same number {}", pieces[at], piece, at);
    }
    pieces[at] = piece;
  }
  return Vocab(std::move(pieces));
}

TokenizerParts parse_tokenizer_json(const json& document, const std::string& where) {
  const JsonPart root(document, where);
  root.check_keys({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                   "decoder", "model"});
  TokenizerParts parts;
  parts.where = where;
  const JsonPart model = root.part("model");
  const std::string type = model_type(model);
  bool raw_bytes = false;
  if (type == "BPE") {
    // Words of bytes spare writing them as letters, which is what such a vocabulary is made of.
    raw_bytes = root.has("pre_tokenizer") && ends_in_byte_level(root.part("pre_tokenizer")) &&
                model.text("continuing_subword_prefix", "").empty() && model.text("end_of_word_suffix", "").empty() &&
                !model.flag("byte_fallback", false);
    parts.model = parse_bpe(model, raw_bytes);
  } else if (type == "WordPiece") {
    parts.model = parse_wordpiece(model);
  } else if (type == "Unigram") {
    parts.model = parse_unigram(model);
  } else {
    model.unknown_type("model");
  }
  if (root.has("normalizer")) parts.normalizer = parse_normalizer(root.part("normalizer"));
  if (root.has("pre_tokenizer")) parts.pre_tokenizer = parse_pre_tokenizer(root.part("pre_tokenizer"), raw_bytes);
  if (root.has("decoder")) parts.decoder = parse_decoder(root.part("decoder"));
  if (root.has("post_processor")) {
    Around around;
    parse_post_processor(root.part("post_processor"), around);
    parts.before = std::move(around.before);
    parts.after = std::move(around.after);
  }
  parts.added = parse_added_tokens(root, parts.model->vocab());
  return parts;
}

}  // namespace kaon
