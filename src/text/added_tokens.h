#pragma once
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"

namespace kaon {

/// A token that is looked for in the text itself, before it is cut into words.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< only where no letter or digit stands beside it
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< and after it
  bool normalized = false;   ///< looked for in normalized text, itself normalized
  bool special = false;
};

/// Finds one of several texts, the longest at the leftmost place.
class TokenFinder {
 public:
  /// `normalizer` (may be null) is applied to the tokens' own text.
  TokenFinder(const std::vector<AddedToken>& tokens, const Normalizer* normalizer);
  bool empty() const { return tokens_.empty(); }

  /// Calls text(begin, end) and token(id) for the parts in order; `in` is valid UTF-8.
  void split(std::string_view in, const std::function<void(size_t, size_t)>& text,
             const std::function<void(int32_t)>& token) const;

 private:
  struct Node {
    std::map<uint8_t, int32_t> next;
    int32_t token = -1;  ///< index of the token that ends here
  };
  int32_t longest_at(std::string_view in, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<size_t> lengths_;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
};

}  // namespace kaon
