// A tokenizer.json in GGUF's words.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "text/pre_tokenizer.h"
#include "text/token_type.h"
#include "text/vocabulary.h"

namespace kaon {

namespace {

using nlohmann::json;

constexpr int64_t kMostTokens = 1 << 24;

bool is_byte_token(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

/// Every regular expression and flag of a pre-tokenizer, wherever it is nested.
void collect_patterns(const json& part, std::vector<std::string>& patterns) {
  if (!part.is_object()) return;
  for (const json& inner : part.value("pretokenizers", json::array())) collect_patterns(inner, patterns);
  const std::string type = part.value("type", "");
  if (type == "Split" && part.contains("pattern")) patterns.push_back(part["pattern"].value("Regex", ""));
  if (type == "ByteLevel" && part.value("use_regex", true)) patterns.emplace_back(kGpt2Pattern);
  if (type == "Digits") patterns.emplace_back(R"(\p{N})");
}

std::string pre_tokenizer_name(const json& part, const std::string& where) {
  std::vector<std::string> patterns;
  collect_patterns(part, patterns);
  for (const char* usual : {"gpt-2", "llama-bpe", "qwen2", "starcoder"}) {
    if (pre_tokenizer_patterns(usual, where) == patterns) return usual;
  }
  fail(ErrorCode::Unsupported, where, "GGUF has no name that Kaon knows for how the pre-tokenizer cuts text");
}

bool has_prefix_token(const json& post) {
  if (!post.is_object()) return false;
  for (const json& inner : post.value("processors", json::array())) {
    if (has_prefix_token(inner)) return true;
  }
  const json single = post.value("single", json::array());
  return single.is_array() && !single.empty() && single.front().contains("SpecialToken");
}

bool prepends_space(const json& normalizer, const json& pre_tokenizer) {
  if (pre_tokenizer.is_object() && pre_tokenizer.value("type", "") == "Metaspace") {
    return pre_tokenizer.value("prepend_scheme", "always") != "never";
  }
  if (!normalizer.is_object()) return false;
  for (const json& inner : normalizer.value("normalizers", json::array())) {
    if (prepends_space(inner, nullptr)) return true;
  }
  return normalizer.value("type", "") == "Prepend";
}

Vocabulary parse(const json& document, const std::string& where) {
  const json model = document.value("model", json::object());
  if (model.value("type", "") != "BPE") {
    fail(ErrorCode::Unsupported, where, "a model of the type '{}'; BPE can be written into a GGUF file",
         model.value("type", ""));
  }
  Vocabulary out;
  const auto put = [&](const std::string& token, int64_t id, int32_t type) {
    if (id < 0 || id >= kMostTokens)
      fail(ErrorCode::InvalidConfig, where, "the token '{}' has the number {}", token, id);
    const auto at = static_cast<size_t>(id);
    while (out.tokens.size() <= at) {
      out.tokens.push_back("[PAD" + std::to_string(out.tokens.size()) + "]");
      out.types.push_back(token_type::kUnused);
    }
    out.tokens[at] = token;
    out.types[at] = type;
  };
  const bool bytes = model.value("byte_fallback", false);
  for (const auto& [token, id] : model.at("vocab").items()) {
    put(token, id.get<int64_t>(), bytes && is_byte_token(token) ? token_type::kByte : token_type::kNormal);
  }
  const json unknown = model.value("unk_token", json());
  for (const json& added : document.value("added_tokens", json::array())) {
    const std::string content = added.at("content").get<std::string>();
    put(content, added.at("id").get<int64_t>(),
        unknown == content              ? token_type::kUnknown
        : added.value("special", false) ? token_type::kControl
                                        : token_type::kUserDefined);
  }
  std::vector<std::pair<std::string, std::string>> merges;
  for (const json& merge : model.value("merges", json::array())) {
    if (merge.is_array()) {
      merges.emplace_back(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
    } else {
      const std::string text = merge.get<std::string>();
      const size_t space = text.find(' ');
      merges.emplace_back(text.substr(0, space), space == std::string::npos ? "" : text.substr(space + 1));
    }
  }
  out.add_bos = has_prefix_token(document.value("post_processor", json()));
  if (!bytes) {
    out.model = "gpt2";
    out.pre = pre_tokenizer_name(document.value("pre_tokenizer", json()), where);
    for (const auto& [left, right] : merges) out.merges.push_back(fmt::format("{} {}", left, right));
    return out;
  }
  // SentencePiece joins the pair whose union has the best score: the earlier a merge, the better.
  out.model = "llama";
  out.pre = "default";
  out.add_space_prefix = prepends_space(document.value("normalizer", json()), document.value("pre_tokenizer", json()));
  std::map<std::string, size_t> rank;
  for (size_t i = 0; i < merges.size(); ++i) rank.emplace(merges[i].first + merges[i].second, i);
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    const auto found = rank.find(out.tokens[id]);
    const bool scored = out.types[id] == token_type::kNormal;
    out.scores.push_back(!scored ? 0 : -static_cast<float>(found == rank.end() ? merges.size() : found->second));
  }
  return out;
}

}  // namespace

Vocabulary read_json_vocabulary(const std::filesystem::path& path) {
  const std::string where = path.string();
  const auto file = MappedFile::open(path);
  try {
    return parse(parse_json({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()}, where), where);
  } catch (const json::exception& error) {
    fail(ErrorCode::CorruptFile, where, "is no tokenizer that can be read: {}", error.what());
  }
}

}  // namespace kaon
