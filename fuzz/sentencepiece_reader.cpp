// Any bytes give a tokenizer or a kaon::Error; a tokenizer turns text into numbers that can be turned back.
#include <cstdint>
#include <span>

#include "base/error.h"
#include "text/sentencepiece_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const kaon::Tokenizer tokenizer(kaon::read_sentencepiece(std::as_bytes(std::span(data, size)), "fuzz"));
    for (const char* text : {"", " ", "Hello,  how are you?\n", "café 你好 \U0001F600 Ａ①ﬁ…\u00a0e\u0301 ▁▁a"}) {
      tokenizer.decode(tokenizer.encode(text));
    }
  } catch (const kaon::Error&) {
  }
  return 0;
}
