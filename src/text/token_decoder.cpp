#include "text/token_decoder.h"

#include <charconv>

#include "base/utf8.h"
#include "text/byte_alphabet.h"

namespace kaon {

namespace {

using Tokens = std::vector<std::string>;

template <typename F>
class Applied : public TokenDecoder {
 public:
  explicit Applied(F function) : function_(std::move(function)) {}
  void apply(Tokens& tokens) const override { function_(tokens); }

 private:
  F function_;
};

template <typename F>
TokenDecoderPtr applied(F function) {
  return std::make_unique<Applied<F>>(std::move(function));
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

/// The byte of a token "<0x41>", or -1.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int byte = 0;
  const auto result = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return result.ec == std::errc() && result.ptr == token.data() + 5 ? byte : -1;
}

/// The bytes as text, or one U+FFFD for each where they are none.
void flush_bytes(std::string& bytes, Tokens& out) {
  if (bytes.empty()) return;
  if (find_invalid_utf8(bytes) == std::string::npos) {
    out.push_back(bytes);
  } else {
    for (size_t i = 0; i < bytes.size(); ++i) out.emplace_back("\uFFFD");
  }
  bytes.clear();
}

}  // namespace

TokenDecoderPtr make_decoder_sequence(std::vector<TokenDecoderPtr> parts) {
  return applied([parts = std::make_shared<std::vector<TokenDecoderPtr>>(std::move(parts))](Tokens& tokens) {
    for (const TokenDecoderPtr& part : *parts) part->apply(tokens);
  });
}

TokenDecoderPtr make_byte_level_decoder() {
  return applied([](Tokens& tokens) {
    std::string bytes;
    for (const std::string& token : tokens) {
      if (!append_letter_bytes(token, bytes)) bytes += token;
    }
    tokens = {lossy_utf8(bytes)};
  });
}

TokenDecoderPtr make_metaspace_decoder(std::string replacement, PrependScheme prepend) {
  return applied([replacement = std::move(replacement), prepend](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], replacement, i == 0 && prepend != PrependScheme::Never ? "" : " ");
    }
  });
}

TokenDecoderPtr make_byte_fallback_decoder() {
  return applied([](Tokens& tokens) {
    Tokens out;
    std::string bytes;
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
      } else {
        flush_bytes(bytes, out);
        out.push_back(std::move(token));
      }
    }
    flush_bytes(bytes, out);
    tokens = std::move(out);
  });
}

TokenDecoderPtr make_fuse_decoder() {
  return applied([](Tokens& tokens) {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens = {std::move(all)};
  });
}

TokenDecoderPtr make_strip_decoder(std::string content, int64_t start, int64_t stop) {
  return applied([content = std::move(content), start, stop](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start && rest.starts_with(content); ++i) rest.remove_prefix(content.size());
      for (int64_t i = 0; i < stop && rest.ends_with(content); ++i) rest.remove_suffix(content.size());
      token = std::string(rest);
    }
  });
}

TokenDecoderPtr make_replace_decoder(const Pattern& pattern, std::string content, const std::string& where) {
  return applied([replace = std::shared_ptr(make_replace(pattern, std::move(content), where))](Tokens& tokens) {
    for (std::string& token : tokens) replace->apply(token);
  });
}

TokenDecoderPtr make_wordpiece_decoder(std::string prefix, bool cleanup) {
  return applied([prefix = std::move(prefix), cleanup](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix)) {
        token.erase(0, prefix.size());
      } else if (i > 0) {
        token.insert(0, 1, ' ');
      }
      if (!cleanup) continue;
      constexpr std::pair<std::string_view, std::string_view> kTidied[] = {
          {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
          {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
      for (const auto& [what, by] : kTidied) replace_all(token, what, by);
    }
  });
}

TokenDecoderPtr make_bpe_decoder(std::string suffix) {
  return applied([suffix = std::move(suffix)](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!suffix.empty()) replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    }
  });
}

TokenDecoderPtr make_spaced_decoder() {
  return applied([](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], "\u2581", i == 0 ? "" : " ");
  });
}

}  // namespace kaon
