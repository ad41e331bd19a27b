#include "api/tokenize.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "text/tokenizer.h"

namespace kaon {

namespace {

TokenIds ids_of(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  if (options.ids) return *options.ids;
  if (options.text) return tokenizer.encode(*options.text, options.special);
  const auto file = MappedFile::open(options.file);
  try {
    return tokenizer.encode({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()},
                            options.special);
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), options.file.string());
  }
}

}  // namespace

Tokenized tokenize(const TokenizeOptions& options) {
  const int sources = int{options.text.has_value()} + int{!options.file.empty()} + int{options.ids.has_value()};
  if (sources != 1) {
    fail(ErrorCode::InvalidConfig, "", "give one of --text, --file and --decode; {} are given", sources);
  }
  const TokenizerPtr tokenizer = open_tokenizer(options.model);
  Tokenized result;
  result.ids = ids_of(options, *tokenizer);
  for (const int32_t id : result.ids) result.tokens.push_back(tokenizer->token(id));
  result.text = tokenizer->decode(result.ids, true);
  return result;
}

nlohmann::ordered_json to_json(const Tokenized& result) {
  return {{"ids", result.ids}, {"tokens", result.tokens}, {"text", result.text}};
}

}  // namespace kaon
