// tokenize_file TOKENIZER TEXT IDS DECODED [special]: the numbers of a text as int32, and the text they give again.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "text/tokenizer.h"

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  try {
    const kaon::TokenizerPtr tokenizer = kaon::open_tokenizer(argv[1]);
    std::stringstream text;
    text << std::ifstream(argv[2], std::ios::binary).rdbuf();
    const bool special = argc > 5;
    const kaon::TokenIds ids = tokenizer->encode(text.str(), special);
    std::ofstream(argv[3], std::ios::binary)
        .write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
    std::ofstream(argv[4], std::ios::binary) << tokenizer->decode(ids, !special);
  } catch (const kaon::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
