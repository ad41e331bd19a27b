#include "text/tokenizer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"

namespace kaon {

namespace {

/// Words seen before and their numbers.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 64;

  /// Appends the numbers of `word` and says so, or remembers where it would be.
  bool find(std::string_view word, TokenIds& out) {
    hash_ = hash(word);
    const size_t last = slots_.size() - 1;
    at_ = hash_ & last;
    for (; slots_[at_].ids > 0; at_ = (at_ + 1) & last) {
      const Slot& slot = slots_[at_];
      if (slot.hash != hash_ || slot.length != word.size()) continue;
      if (std::memcmp(letters_.data() + slot.word, word.data(), word.size()) != 0) continue;
      const int32_t* ids = numbers_.data() + slot.first;
      for (uint32_t i = 0; i < slot.ids; ++i) out.push_back(ids[i]);
      return true;
    }
    return false;
  }

  /// Keeps the numbers of the word that was just not found.
  void keep(std::string_view word, std::span<const int32_t> ids) {
    if (ids.empty() || ids.size() > kLongestWord) return;
    if (used_ * 2 > slots_.size()) {
      if (slots_.size() == kMostSlots) return;
      grow();
    }
    Slot& slot = slots_[at_];
    slot.hash = hash_;
    slot.word = static_cast<uint32_t>(letters_.size());
    slot.length = static_cast<uint16_t>(word.size());
    slot.first = static_cast<uint32_t>(numbers_.size());
    slot.ids = static_cast<uint16_t>(ids.size());
    letters_ += word;
    numbers_.insert(numbers_.end(), ids.begin(), ids.end());
    ++used_;
  }

 private:
  static constexpr size_t kFirstSlots = 1 << 10;  // powers of two
  static constexpr size_t kMostSlots = 1 << 16;
  struct Slot {
    uint64_t hash = 0;
    uint32_t word = 0, first = 0;
    uint16_t length = 0, ids = 0;  ///< ids = 0: the slot is free
  };

  void grow() {
    constexpr size_t kGrowth = 4;
    std::vector<Slot> before(kGrowth * slots_.size());
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.ids > 0) slots_[free_slot(slot.hash)] = slot;
    }
    at_ = free_slot(hash_);
  }

  size_t free_slot(uint64_t hash) const {
    const size_t last = slots_.size() - 1;
    size_t at = hash & last;
    while (slots_[at].ids > 0) at = (at + 1) & last;
    return at;
  }

  static uint64_t hash(std::string_view word) {
    uint64_t mixed = word.size() * 0x9E3779B97F4A7C15U;
    const char* data = word.data();
    size_t left = word.size();
    const auto mix = [&](uint64_t eight) {
      mixed = (mixed ^ eight) * 0xD6E8FEB86659FD93U;
      mixed ^= mixed >> 32;
    };
    for (; left >= 8; left -= 8, data += 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, data, 8);
      mix(eight);
    }
    if (left > 0) {
      uint64_t eight = 0;
      std::memcpy(&eight, data, left);
      mix(eight);
    }
    return mixed;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(kFirstSlots);
  std::string letters_;
  TokenIds numbers_;
  size_t used_ = 0, at_ = 0;
  uint64_t hash_ = 0;
};

std::vector<AddedToken> those(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> out;
  std::ranges::copy_if(tokens, std::back_inserter(out),
                       [&](const AddedToken& token) { return token.normalized == normalized; });
  return out;
}

}  // namespace

class Tokenizer::State {
 public:
  WordCache cache;
  WordScratch scratch;
};

Tokenizer::Tokenizer(TokenizerParts parts)
    : parts_(std::move(parts)),
      raw_(those(parts_.added, false), nullptr),
      normalized_(those(parts_.added, true), parts_.normalizer.get()),
      tokens_(parts_.model->vocab().pieces()) {
  for (const AddedToken& token : parts_.added) {
    const auto id = static_cast<size_t>(token.id);
    if (id >= tokens_.size()) tokens_.resize(id + 1);
    tokens_[id] = token.content;
    if (!token.special) continue;
    special_.resize(std::max(special_.size(), id + 1));
    special_[id] = true;
  }
}

Tokenizer::~Tokenizer() = default;

TokenIds Tokenizer::encode(std::string_view text, bool add_special) const {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    fail(ErrorCode::InvalidInput, "text", "is not UTF-8: byte {} (0x{:02X}) is not part of a character", invalid,
         static_cast<uint8_t>(text[invalid]));
  }
  std::unique_ptr<State> state;
  {
    const std::lock_guard lock(mutex_);
    if (!states_.empty()) {
      state = std::move(states_.back());
      states_.pop_back();
    }
  }
  if (!state) state = std::make_unique<State>();

  TokenIds ids;
  ids.reserve(text.size() / 4 + 8);
  if (add_special) ids = parts_.before;
  raw_.split(
      text, [&](size_t begin, size_t end) { encode_text(text.substr(begin, end - begin), begin == 0, *state, ids); },
      [&](int32_t id) { ids.push_back(id); });
  if (add_special) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());

  const std::lock_guard lock(mutex_);
  states_.push_back(std::move(state));
  return ids;
}

void Tokenizer::encode_text(std::string_view text, bool starts_text, State& state, TokenIds& out) const {
  std::string changed;
  if (parts_.normalizer) {
    changed = text;
    parts_.normalizer->apply(changed);
    text = changed;
  }
  normalized_.split(
      text,
      [&](size_t begin, size_t end) {
        Pieces pieces{.text = text, .ranges = {{begin, end}}, .starts_text = starts_text && begin == 0};
        if (parts_.pre_tokenizer) parts_.pre_tokenizer->apply(pieces);
        encode_words(pieces, state, out);
      },
      [&](int32_t id) { out.push_back(id); });
}

void Tokenizer::encode_words(const Pieces& pieces, State& state, TokenIds& out) const {
  const auto encode_word = [&](std::string_view word) {
    if (word.size() > WordCache::kLongestWord) {
      parts_.model->encode(word, state.scratch, out);
    } else if (!state.cache.find(word, out)) {
      const size_t before = out.size();
      parts_.model->encode(word, state.scratch, out);
      state.cache.keep(word, std::span(out).subspan(before));
    }
  };
  const std::string_view cut = parts_.model->safe_cut();
  for (const Pieces::Range& range : pieces.ranges) {
    std::string_view word = pieces.view(range);
    if (!cut.empty()) {
      // Cut where the mark follows something else.
      size_t at = 0;
      while (true) {
        while (word.substr(at).starts_with(cut)) at += cut.size();
        at = word.find(cut, at);
        if (at == std::string_view::npos) break;
        encode_word(word.substr(0, at));
        word.remove_prefix(at);
        at = 0;
      }
    }
    if (!word.empty()) encode_word(word);
  }
}

const std::string& Tokenizer::token(int32_t id) const {
  const bool known = id >= 0 && id < size() && !tokens_[static_cast<size_t>(id)].empty();
  if (!known) fail(ErrorCode::InvalidInput, parts_.where, "no token has the number {}; there are {}", id, size());
  return tokens_[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  for (const AddedToken& added : parts_.added) {
    if (added.content == token) return added.id;
  }
  const int32_t id = parts_.model->vocab().find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < std::ssize(special_) && special_[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const std::string& name = token(id);
    if (!(skip_special && is_special(id))) tokens.push_back(name);
  }
  if (parts_.decoder) parts_.decoder->apply(tokens);
  std::string text;
  for (const std::string& token : tokens) {
    if (!parts_.decoder && !text.empty()) text += ' ';
    text += token;
  }
  return text;
}

std::string StreamDecoder::add(int32_t id) {
  ids_.push_back(id);
  std::string text = tokenizer_->decode(ids_, skip_special_);
  // A character may still become whole; a text that is no longer than before says nothing new.
  if (text.size() <= given_.size() || text.ends_with("\uFFFD")) return {};
  std::string added = text.substr(given_.size());
  // What comes next depends on the tokens before it (a space is dropped at the start of a text), so they stay.
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<int64_t>(settled_));
  settled_ = ids_.size();
  given_ = tokenizer_->decode(ids_, skip_special_);
  return added;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_->decode(ids_, skip_special_);
  std::string rest = text.size() > given_.size() ? text.substr(given_.size()) : std::string();
  *this = StreamDecoder(tokenizer_, skip_special_);
  return rest;
}

}  // namespace kaon
