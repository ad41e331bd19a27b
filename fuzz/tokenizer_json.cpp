// Any bytes give a tokenizer or a kaon::Error; a tokenizer turns text into numbers that can be turned back.
#include "text/tokenizer_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace {

constexpr std::string_view kTexts[] = {"", " ", "Hello, how are you? It's  12345 \n\n\tdon't <s> </s>[MASK] x",
                                       "café naïve 你好 \U0001F600 Ａ①ﬁ…\u00a0e\u0301 İ ▁▁a"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = nlohmann::json::parse(data, data + size, nullptr, false);
  if (json.is_discarded()) return 0;
  try {
    const kaon::Tokenizer tokenizer(kaon::parse_tokenizer_json(json, "fuzz"));
    for (const std::string_view text : kTexts) {
      const kaon::TokenIds ids = tokenizer.encode(text);
      tokenizer.decode(ids);
      tokenizer.decode(ids, false);
    }
  } catch (const kaon::Error&) {
  }
  return 0;
}
