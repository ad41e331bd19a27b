#include "text/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"

namespace kaon {

namespace {

/// Where the white space at the end of `text` begins.
size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    std::string_view last = text.substr(begin, end - begin);
    if (!is_whitespace(take_utf8(last))) break;
    end = begin;
  }
  return end;
}

size_t leading_space(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view after = rest;
    if (!is_whitespace(take_utf8(after))) break;
    rest = after;
  }
  return text.size() - rest.size();
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  std::string_view last = text.substr(begin);
  return is_word(take_utf8(last));
}

bool starts_with_word(std::string_view text) { return !text.empty() && is_word(take_utf8(text)); }

}  // namespace

TokenFinder::TokenFinder(const std::vector<AddedToken>& tokens, const Normalizer* normalizer) : nodes_(1) {
  for (const AddedToken& token : tokens) {
    std::string content = token.content;
    if (normalizer != nullptr) normalizer->apply(content);
    if (content.empty()) continue;
    size_t node = 0;
    for (const char c : content) {
      const auto byte = static_cast<uint8_t>(c);
      const auto [it, added] = nodes_[node].next.try_emplace(byte, static_cast<int32_t>(nodes_.size()));
      const auto next = static_cast<size_t>(it->second);
      if (added) nodes_.emplace_back();
      node = next;
    }
    if (nodes_[node].token >= 0) continue;  // the first of equal ones wins
    begins_[static_cast<uint8_t>(content[0])] = true;
    nodes_[node].token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(token);
    lengths_.push_back(content.size());
  }
}

int32_t TokenFinder::longest_at(std::string_view in, size_t at) const {
  int32_t found = -1;
  size_t node = 0;
  for (; at < in.size(); ++at) {
    const auto next = nodes_[node].next.find(static_cast<uint8_t>(in[at]));
    if (next == nodes_[node].next.end()) break;
    node = static_cast<size_t>(next->second);
    if (nodes_[node].token >= 0) found = nodes_[node].token;
  }
  return found;
}

void TokenFinder::split(std::string_view in, const std::function<void(size_t, size_t)>& text,
                        const std::function<void(int32_t)>& token) const {
  size_t done = 0;
  for (size_t at = 0; at < in.size() && !tokens_.empty();) {
    const int32_t index = begins_[static_cast<uint8_t>(in[at])] ? longest_at(in, at) : -1;
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& found = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    size_t end = at + lengths_[static_cast<size_t>(index)];
    at = end;
    if (found.single_word && (ends_with_word(in.substr(0, begin)) || starts_with_word(in.substr(end)))) continue;
    if (found.lstrip) begin = std::max(trailing_space(in.substr(0, begin)), done);
    if (found.rstrip) end += leading_space(in.substr(end));
    if (begin < done) continue;  // the white space before it went to another
    if (begin > done) text(done, begin);
    token(found.id);
    done = end;
  }
  if (done < in.size()) text(done, in.size());
}

}  // namespace kaon
