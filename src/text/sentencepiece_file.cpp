#include "text/sentencepiece_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/token_type.h"
#include "text/unigram.h"

namespace kaon {

namespace {

/// Fields of a protobuf message, one after the other.
class WireReader {
 public:
  WireReader(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  /// Goes to the next field; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    field_ = key >> 3;
    switch (key & 7) {
      case 0: number_ = varint(); break;
      case 1: take(8); break;
      case 2: bytes_ = take(varint()); break;
      case 5: bytes_ = take(4); break;
      default: broken();
    }
    kind_ = static_cast<int>(key & 7);
    return true;
  }

  uint64_t field() const { return field_; }
  std::string_view bytes() const { return expect(2), bytes_; }
  int64_t integer() const { return expect(0), static_cast<int64_t>(number_); }
  bool flag() const { return integer() != 0; }
  float number() const {
    expect(5);
    float value = 0;
    std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }

 private:
  [[noreturn]] void broken() const {
    fail(ErrorCode::CorruptFile, where_, "is no SentencePiece model: a field is cut short or malformed");
  }
  void expect(int kind) const {
    if (kind_ != kind) broken();
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    broken();
  }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) broken();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
  const std::string& where_;
  uint64_t field_ = 0, number_ = 0;
  std::string_view bytes_;
  int kind_ = -1;
};

constexpr int64_t kUnigram = 1, kBpe = 2;  // types of models

constexpr size_t kLongestPiece = 4096;  // bytes; real ones have some hundred

/// What Kaon uses of sentencepiece_model.proto, with its defaults.
struct Model {
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::vector<int64_t> types;
  int64_t model_type = kUnigram;
  int64_t unknown = 0, bos = 1, eos = 2, padding = -1;
  bool byte_fallback = false;
  bool space_is_suffix = false;
  std::string charsmap;
  bool dummy_prefix = true;
  bool collapse_spaces = true;
  bool escape_spaces = true;
};

void read_piece(std::string_view bytes, const std::string& where, Model& model) {
  WireReader reader(bytes, where);
  std::string piece;
  float score = 0;
  int64_t type = token_type::kNormal;
  while (reader.next()) {
    if (reader.field() == 1) piece = reader.bytes();
    if (reader.field() == 2) score = reader.number();
    if (reader.field() == 3) type = reader.integer();
  }
  const size_t id = model.pieces.size();
  if (piece.empty() || piece.size() > kLongestPiece || find_invalid_utf8(piece) != std::string::npos) {
    fail(ErrorCode::CorruptFile, where, "piece {} is empty, longer than {} bytes or not UTF-8", id, kLongestPiece);
  }
  if (!std::isfinite(score)) fail(ErrorCode::CorruptFile, where, "piece {} has a score that is not finite", id);
  if (type < token_type::kNormal || type > token_type::kByte)
    fail(ErrorCode::CorruptFile, where, "piece {} is of the type {}", id, type);
  model.pieces.push_back(std::move(piece));
  model.scores.push_back(score);
  model.types.push_back(type);
}

void read_trainer(std::string_view bytes, const std::string& where, Model& model) {
  WireReader reader(bytes, where);
  while (reader.next()) {
    switch (reader.field()) {
      case 3: model.model_type = reader.integer(); break;
      case 24: model.space_is_suffix = reader.flag(); break;
      case 35: model.byte_fallback = reader.flag(); break;
      case 40: model.unknown = reader.integer(); break;
      case 41: model.bos = reader.integer(); break;
      case 42: model.eos = reader.integer(); break;
      case 43: model.padding = reader.integer(); break;
      default: break;
    }
  }
}

void read_normalizer(std::string_view bytes, const std::string& where, Model& model) {
  WireReader reader(bytes, where);
  while (reader.next()) {
    switch (reader.field()) {
      case 2: model.charsmap = reader.bytes(); break;
      case 3: model.dummy_prefix = reader.flag(); break;
      case 4: model.collapse_spaces = reader.flag(); break;
      case 5: model.escape_spaces = reader.flag(); break;
      default: break;
    }
  }
}

Model read_model(std::span<const std::byte> bytes, const std::string& where) {
  Model model;
  WireReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, where);
  while (reader.next()) {
    if (reader.field() == 1) read_piece(reader.bytes(), where, model);
    if (reader.field() == 2) read_trainer(reader.bytes(), where, model);
    if (reader.field() == 3) read_normalizer(reader.bytes(), where, model);
  }
  if (model.pieces.empty()) fail(ErrorCode::CorruptFile, where, "is no SentencePiece model: it has no pieces");
  if (model.space_is_suffix || !model.escape_spaces) {
    fail(ErrorCode::Unsupported, where, "white space as a suffix, or not written as U+2581, is not read");
  }
  return model;
}

TokenizerParts make_parts(Model model, const std::string& where) {
  TokenizerParts parts;
  parts.where = where;
  const auto known = [&](int64_t id) {
    const bool there = id >= 0 && id < std::ssize(model.pieces);
    return there ? std::optional(static_cast<int32_t>(id)) : std::nullopt;
  };
  parts.unknown = known(model.unknown);
  parts.bos = known(model.bos);
  parts.eos = known(model.eos);
  parts.padding = known(model.padding);
  std::vector<bool> usable(model.pieces.size());
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const int64_t type = model.types[id];
    usable[id] = type == token_type::kNormal || type == token_type::kUserDefined;
    if (type == token_type::kUnused && model.model_type == kBpe) {
      fail(ErrorCode::Unsupported, where, "piece {} of this BPE is marked as unused, which is not read", id);
    }
    if (type == token_type::kUnknown || type == token_type::kControl || type == token_type::kUserDefined) {
      parts.added.push_back(
          {.id = static_cast<int32_t>(id), .content = model.pieces[id], .special = type != token_type::kUserDefined});
    }
  }

  std::vector<NormalizerPtr> steps;
  if (!model.charsmap.empty()) {
    steps.push_back(make_charsmap(std::move(model.charsmap), CharsmapUse::LongestMatch, where));
  }
  if (model.collapse_spaces) steps.push_back(make_collapse_spaces());
  if (model.dummy_prefix) steps.push_back(make_prepend(" "));
  steps.push_back(make_replace({" "}, "\u2581", where));
  parts.normalizer = make_normalizer_sequence(std::move(steps));

  Vocab vocab(std::move(model.pieces));
  if (model.model_type == kBpe) {
    BpeOptions options;
    options.unknown = parts.unknown.value_or(-1);
    options.byte_fallback = model.byte_fallback;
    options.fuse_unknown = true;
    parts.model = make_scored_bpe(std::move(vocab), model.scores, usable, options);
  } else if (model.model_type == kUnigram) {
    std::vector<double> scores(model.scores.begin(), model.scores.end());
    parts.model = make_unigram(std::move(vocab), std::move(scores), usable,
                               {.unknown = parts.unknown.value_or(-1), .byte_fallback = model.byte_fallback});
  } else {
    fail(ErrorCode::Unsupported, where, "model type {} is neither Unigram (1) nor BPE (2)", model.model_type);
  }

  std::vector<TokenDecoderPtr> decoders;
  decoders.push_back(make_replace_decoder({"\u2581"}, " ", where));
  decoders.push_back(make_byte_fallback_decoder());
  decoders.push_back(make_fuse_decoder());
  if (model.dummy_prefix) decoders.push_back(make_strip_decoder(" ", 1, 0));
  parts.decoder = make_decoder_sequence(std::move(decoders));
  return parts;
}

}  // namespace

TokenizerParts read_sentencepiece(std::span<const std::byte> bytes, const std::string& where) {
  return make_parts(read_model(bytes, where), where);
}

TokenizerParts read_sentencepiece_file(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  return read_sentencepiece(file->bytes(), path.string());
}

}  // namespace kaon
