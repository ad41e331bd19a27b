#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/base64.h"
#include "text/tokenizer_json.h"

namespace kaon {

namespace {

Pattern parse_pattern(const JsonPart& part, const char* key) {
  const JsonPart pattern = part.part(key);
  pattern.check_keys({"String", "Regex"});
  if (pattern.has("String") == pattern.has("Regex")) part.wrong(key, "an object with \"String\" or \"Regex\"");
  if (pattern.has("Regex")) return {pattern.text("Regex"), true};
  return {pattern.text("String"), false};
}

SplitBehavior parse_behavior(const JsonPart& part, const std::string& otherwise) {
  const std::string name = part.text("behavior", otherwise);
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  part.wrong("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

/// A string of one character.
std::string parse_character(const JsonPart& part, const char* key, const std::string& otherwise) {
  std::string text = part.text(key, otherwise);
  if (text.empty() || utf8_length(text) != text.size()) part.wrong(key, "one character");
  return text;
}

struct MetaspaceParts {
  std::string replacement;
  PrependScheme prepend = PrependScheme::Always;
  bool split = true;
};

MetaspaceParts parse_metaspace(const JsonPart& part) {
  part.check_keys({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  MetaspaceParts out;
  out.replacement = parse_character(part, "replacement", "\u2581");
  // Older files say add_prefix_space instead.
  const std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme == "first") {
    out.prepend = PrependScheme::First;
  } else if (scheme == "never") {
    out.prepend = PrependScheme::Never;
  } else if (scheme != "always") {
    part.wrong("prepend_scheme", "always, never or first");
  }
  out.split = part.flag("split", true);
  return out;
}

NormalizerPtr parse_bert_normalizer(const JsonPart& part) {
  part.check_keys({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  BertNormalizerOptions options;
  options.clean_text = part.flag("clean_text", true);
  options.handle_chinese_chars = part.flag("handle_chinese_chars", true);
  if (part.has("strip_accents")) options.strip_accents = part.flag("strip_accents", false);
  options.lowercase = part.flag("lowercase", true);
  return make_bert_normalizer(options);
}

/// Objects within objects as deep as this are nobody's tokenizer.
void check_depth(const JsonPart& part) {
  if (std::ranges::count(part.where(), '[') > 20) fail(ErrorCode::Unsupported, part.where(), "nested too deeply");
}

}  // namespace

NormalizerPtr parse_normalizer(const JsonPart& part) {
  const std::string type = part.type();
  const std::vector<std::pair<std::string, UnicodeForm>> forms = {
      {"NFC", UnicodeForm::Nfc}, {"NFD", UnicodeForm::Nfd}, {"NFKC", UnicodeForm::Nfkc}, {"NFKD", UnicodeForm::Nfkd}};
  const auto form = std::ranges::find(forms, type, &std::pair<std::string, UnicodeForm>::first);
  const bool plain =
      form != forms.end() || type == "Lowercase" || type == "StripAccents" || type == "Nmt" || type == "ByteLevel";
  if (plain) part.check_keys({"type"});
  if (form != forms.end()) return make_unicode_normalizer(form->second);
  if (type == "Lowercase") return make_lowercase();
  if (type == "StripAccents") return make_strip_accents();
  if (type == "Nmt") return make_nmt();
  if (type == "ByteLevel") return make_byte_letters();
  if (type == "BertNormalizer") return parse_bert_normalizer(part);
  if (type == "Strip") {
    part.check_keys({"type", "strip_left", "strip_right"});
    return make_strip(part.flag("strip_left", true), part.flag("strip_right", true));
  }
  if (type == "Prepend") {
    part.check_keys({"type", "prepend"});
    return make_prepend(part.text("prepend"));
  }
  if (type == "Replace") {
    part.check_keys({"type", "pattern", "content"});
    return make_replace(parse_pattern(part, "pattern"), part.text("content"), part.where());
  }
  if (type == "Precompiled") {
    part.check_keys({"type", "precompiled_charsmap"});
    return make_charsmap(decode_base64(part.text("precompiled_charsmap"), part.where()), CharsmapUse::Graphemes,
                         part.where());
  }
  if (type == "Sequence") {
    part.check_keys({"type", "normalizers"});
    check_depth(part);
    std::vector<NormalizerPtr> parts;
    for (const JsonPart& one : part.parts("normalizers")) parts.push_back(parse_normalizer(one));
    return make_normalizer_sequence(std::move(parts));
  }
  part.unknown_type("normalizer");
}

PreTokenizerPtr parse_pre_tokenizer(const JsonPart& part, bool raw_bytes) {
  const std::string type = part.type();
  if (type == "ByteLevel") {
    part.check_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return make_byte_level(part.flag("add_prefix_space", true), part.flag("use_regex", true), !raw_bytes);
  }
  if (type == "Split") {
    part.check_keys({"type", "pattern", "behavior", "invert"});
    return make_split(parse_pattern(part, "pattern"), parse_behavior(part, ""), part.flag("invert", false),
                      part.where());
  }
  if (type == "Metaspace") {
    MetaspaceParts parts = parse_metaspace(part);
    return make_metaspace(std::move(parts.replacement), parts.prepend, parts.split);
  }
  if (type == "Digits") {
    part.check_keys({"type", "individual_digits"});
    return make_digits(part.flag("individual_digits", false));
  }
  if (type == "Punctuation") {
    part.check_keys({"type", "behavior"});
    return make_punctuation(parse_behavior(part, "Isolated"));
  }
  if (type == "CharDelimiterSplit") {
    part.check_keys({"type", "delimiter"});
    return make_split({parse_character(part, "delimiter", "")}, SplitBehavior::Removed, false, part.where());
  }
  if (type == "Sequence") {
    part.check_keys({"type", "pretokenizers"});
    check_depth(part);
    std::vector<PreTokenizerPtr> parts;
    const auto all = part.parts("pretokenizers");
    for (size_t i = 0; i < all.size(); ++i) {
      parts.push_back(parse_pre_tokenizer(all[i], raw_bytes && i + 1 == all.size()));
    }
    return make_pre_tokenizer_sequence(std::move(parts));
  }
  const bool plain = type == "Whitespace" || type == "WhitespaceSplit" || type == "BertPreTokenizer";
  if (plain) part.check_keys({"type"});
  if (type == "Whitespace") return make_whitespace();
  if (type == "WhitespaceSplit") return make_whitespace_split();
  if (type == "BertPreTokenizer") return make_bert_pre_tokenizer();
  part.unknown_type("pre-tokenizer");
}

bool ends_in_byte_level(const JsonPart& pre_tokenizer) {
  const std::string type = pre_tokenizer.type();
  if (type == "ByteLevel") return true;
  if (type != "Sequence") return false;
  check_depth(pre_tokenizer);
  const auto all = pre_tokenizer.parts("pretokenizers");
  return !all.empty() && ends_in_byte_level(all.back());
}

TokenDecoderPtr parse_decoder(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "ByteLevel") {
    part.check_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return make_byte_level_decoder();
  }
  if (type == "Metaspace") {
    MetaspaceParts parts = parse_metaspace(part);
    return make_metaspace_decoder(std::move(parts.replacement), parts.prepend);
  }
  if (type == "ByteFallback" || type == "Fuse") {
    part.check_keys({"type"});
    return type == "Fuse" ? make_fuse_decoder() : make_byte_fallback_decoder();
  }
  if (type == "Strip") {
    part.check_keys({"type", "content", "start", "stop"});
    constexpr int64_t kMost = int64_t{1} << 31;
    return make_strip_decoder(parse_character(part, "content", ""), part.integer("start", 0, kMost),
                              part.integer("stop", 0, kMost));
  }
  if (type == "Replace") {
    part.check_keys({"type", "pattern", "content"});
    return make_replace_decoder(parse_pattern(part, "pattern"), part.text("content"), part.where());
  }
  if (type == "WordPiece") {
    part.check_keys({"type", "prefix", "cleanup"});
    return make_wordpiece_decoder(part.text("prefix", "##"), part.flag("cleanup", true));
  }
  if (type == "BPEDecoder") {
    part.check_keys({"type", "suffix"});
    return make_bpe_decoder(part.text("suffix", "</w>"));
  }
  if (type == "Sequence") {
    part.check_keys({"type", "decoders"});
    check_depth(part);
    std::vector<TokenDecoderPtr> parts;
    for (const JsonPart& one : part.parts("decoders")) parts.push_back(parse_decoder(one));
    return make_decoder_sequence(std::move(parts));
  }
  part.unknown_type("decoder");
}

}  // namespace kaon
