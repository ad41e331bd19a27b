#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "io/gguf/gguf.h"
#include "text/bpe.h"
#include "text/sentencepiece_file.h"
#include "text/tokenizer_json.h"
#include "text/vocabulary.h"
#include "text/wordpiece.h"

namespace kaon {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// tokenizer_config.json and special_tokens_map.json; an empty object where they are missing.
json read_config(const fs::path& folder) {
  json config = json::object();
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (!is_there(folder / name)) continue;
    const std::string path = (folder / name).string();
    const json read = read_json(path);
    config.update(JsonPart(read, path).value());
  }
  return config;
}

/// "bos_token": "<s>", or {"content": "<s>", …}.
std::string special_name(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) {
    return (*it)["content"].get<std::string>();
  }
  return {};
}

bool config_flag(const json& config, const char* key, bool otherwise) {
  const auto it = config.find(key);
  return it != config.end() && it->is_boolean() ? it->get<bool>() : otherwise;
}

std::optional<int32_t> find_token(const TokenizerParts& parts, const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const AddedToken& token : parts.added) {
    if (token.content == name) return token.id;
  }
  const int32_t id = parts.model->vocab().find(name);
  return id < 0 ? std::nullopt : std::optional(id);
}

void set_special_ids(const json& config, TokenizerParts& parts) {
  const auto set = [&](const char* key, std::optional<int32_t>& id) {
    if (const auto found = find_token(parts, special_name(config, key))) id = found;
  };
  set("bos_token", parts.bos);
  set("eos_token", parts.eos);
  set("unk_token", parts.unknown);
  set("pad_token", parts.padding);
}

/// The special tokens that the configuration names are looked for in the text.
void add_special_tokens(const json& config, TokenizerParts& parts) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"}) {
    const std::string name = special_name(config, key);
    const int32_t id = parts.model->vocab().find(name);
    const bool known = std::ranges::find(parts.added, name, &AddedToken::content) != parts.added.end();
    if (id >= 0 && !known) parts.added.push_back({.id = id, .content = name, .special = true});
  }
}

std::vector<std::string> read_lines(const fs::path& path) {
  const auto file = MappedFile::open(path);
  std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  if (find_invalid_utf8(text) != std::string_view::npos) {
    fail(ErrorCode::CorruptFile, path.string(), "is not UTF-8 at byte {}", find_invalid_utf8(text));
  }
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// GPT-2's two files.
TokenizerParts read_vocab_and_merges(const fs::path& folder, const json& config) {
  const std::string kind = config.value("tokenizer_class", "GPT2Tokenizer");
  const bool roberta = kind == "RobertaTokenizer" || kind == "BartTokenizer";
  if (!roberta && kind != "GPT2Tokenizer" && kind != "GPT2TokenizerFast") {
    fail(ErrorCode::Unsupported, (folder / "tokenizer_config.json").string(),
         "\"tokenizer_class\" is {}; from vocab.json and merges.txt GPT2Tokenizer, RobertaTokenizer and BartTokenizer "
         "are read",
         kind);
  }
  TokenizerParts parts;
  parts.where = (folder / "vocab.json").string();
  Vocab vocab = parse_vocab(read_json(parts.where), parts.where);
  std::vector<std::pair<std::string, std::string>> merges;
  const std::string merges_path = (folder / "merges.txt").string();
  for (const std::string& line : read_lines(merges_path)) {
    if (line.empty() || (merges.empty() && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      fail(ErrorCode::CorruptFile, merges_path, "'{}' is no pair", line);
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  BpeOptions options;
  options.bytes = true;
  parts.model = make_bpe(std::move(vocab), merges, options, merges_path);
  parts.pre_tokenizer = make_byte_level(config_flag(config, "add_prefix_space", false), true, false);
  parts.decoder = make_byte_level_decoder();
  add_special_tokens(config, parts);
  set_special_ids(config, parts);
  if (roberta || config_flag(config, "add_bos_token", false)) {
    if (parts.bos) parts.before.push_back(*parts.bos);
  }
  if (roberta && parts.eos) parts.after.push_back(*parts.eos);
  return parts;
}

/// BERT's list of pieces.
TokenizerParts read_vocab_txt(const fs::path& path, json config) {
  for (const auto& [key, name] : {std::pair{"unk_token", "[UNK]"},
                                  {"sep_token", "[SEP]"},
                                  {"pad_token", "[PAD]"},
                                  {"cls_token", "[CLS]"},
                                  {"mask_token", "[MASK]"}}) {
    if (!config.contains(key)) config[key] = name;
  }
  TokenizerParts parts;
  parts.where = path.string();
  Vocab vocab(read_lines(path));
  const auto needed = [&](const char* key) {
    const int32_t id = vocab.find(special_name(config, key));
    if (id < 0) fail(ErrorCode::InvalidConfig, parts.where, "has no '{}'", special_name(config, key));
    return id;
  };
  WordPieceOptions options;
  options.unknown = needed("unk_token");
  parts.before = {needed("cls_token")};
  parts.after = {needed("sep_token")};
  parts.model = make_wordpiece(std::move(vocab), options);
  BertNormalizerOptions normalizer;
  normalizer.lowercase = config_flag(config, "do_lower_case", true);
  normalizer.handle_chinese_chars = config_flag(config, "tokenize_chinese_chars", true);
  const auto strip = config.find("strip_accents");
  if (strip != config.end() && strip->is_boolean()) normalizer.strip_accents = strip->get<bool>();
  parts.normalizer = make_bert_normalizer(normalizer);
  parts.pre_tokenizer = make_bert_pre_tokenizer();
  parts.decoder = make_wordpiece_decoder("##", true);
  add_special_tokens(config, parts);
  set_special_ids(config, parts);
  return parts;
}

TokenizerParts read_sentencepiece_folder(const fs::path& path, const json& config) {
  TokenizerParts parts = read_sentencepiece_file(path);
  set_special_ids(config, parts);
  const bool t5 = config.value("tokenizer_class", "") == "T5Tokenizer";
  if (config_flag(config, "add_bos_token", !t5) && parts.bos) parts.before.push_back(*parts.bos);
  if (config_flag(config, "add_eos_token", t5) && parts.eos) parts.after.push_back(*parts.eos);
  return parts;
}

TokenizerParts read_tokenizer_json(const fs::path& path, const json& config) {
  TokenizerParts parts = parse_tokenizer_json(read_json(path.string()), path.string());
  set_special_ids(config, parts);
  return parts;
}

TokenizerParts read_parts(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    const json config = read_config(path.parent_path());
    const std::string name = path.filename().string();
    if (name == "vocab.json" || name == "merges.txt") return read_vocab_and_merges(path.parent_path(), config);
    if (path.extension() == ".json") return read_tokenizer_json(path, config);
    if (path.extension() == ".model") return read_sentencepiece_folder(path, config);
    if (path.extension() == ".txt") return read_vocab_txt(path, config);
    fail(is_there(path) ? ErrorCode::InvalidInput : ErrorCode::Io, path.string(),
         "{}; a tokenizer is a folder, a .gguf, tokenizer.json, tokenizer.model, vocab.json or vocab.txt",
         is_there(path) ? "is no file of a tokenizer" : "no such file or folder");
  }
  const json config = read_config(path);
  if (is_there(path / "tokenizer.json")) return read_tokenizer_json(path / "tokenizer.json", config);
  if (is_there(path / "tokenizer.model")) return read_sentencepiece_folder(path / "tokenizer.model", config);
  if (is_there(path / "vocab.json") && is_there(path / "merges.txt")) return read_vocab_and_merges(path, config);
  if (is_there(path / "vocab.txt")) return read_vocab_txt(path / "vocab.txt", config);
  fail(ErrorCode::InvalidInput, path.string(),
       "has no tokenizer: neither tokenizer.json, tokenizer.model, vocab.json with merges.txt, nor vocab.txt");
}

}  // namespace

TokenizerPtr open_tokenizer(const fs::path& path) {
  if (path.extension() == ".gguf") return make_tokenizer(read_vocabulary(GgufFile::read(path)), path.string());
  return std::make_shared<Tokenizer>(read_parts(path));
}

}  // namespace kaon
