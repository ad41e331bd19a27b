#pragma once
// Just enough of GGUF's metadata to get at a vocabulary in a test.
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "text/vocabulary.h"

namespace kaon {

class GgufMetadata {
 public:
  explicit GgufMetadata(const std::string& path) : file_(MappedFile::open(path)) {
    at_ = 4 + 4 + 8;  // magic, version, number of tensors
    const auto count = take<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      const std::string key = take_text();
      read_value(key, take<uint32_t>());
    }
  }

  Vocabulary vocabulary() const {
    Vocabulary out;
    out.model = one("model");
    out.pre = one("pre");
    out.tokens = texts("tokens");
    out.merges = texts("merges");
    for (const double x : numbers("scores")) out.scores.push_back(static_cast<float>(x));
    for (const double x : numbers("token_type")) out.types.push_back(static_cast<int32_t>(x));
    const auto id = [&](const char* key) {
      const auto values = numbers(key);
      return values.empty() ? std::nullopt : std::optional(static_cast<int64_t>(values[0]));
    };
    out.bos = id("bos_token_id");
    out.eos = id("eos_token_id");
    out.unknown = id("unknown_token_id");
    out.padding = id("padding_token_id");
    out.separator = id("seperator_token_id");
    out.cls = id("cls_token_id");
    const auto flag = [&](const char* key) {
      const auto values = numbers(key);
      return values.empty() ? std::nullopt : std::optional(values[0] != 0);
    };
    out.add_bos = flag("add_bos_token");
    out.add_eos = flag("add_eos_token");
    out.add_space_prefix = flag("add_space_prefix");
    return out;
  }

 private:
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, file_->bytes().subspan(at_, sizeof value).data(), sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string take_text() {
    const auto size = take<uint64_t>();
    const auto bytes = file_->bytes().subspan(at_, size);
    at_ += size;
    return {reinterpret_cast<const char*>(bytes.data()), size};
  }
  void read_value(const std::string& key, uint32_t type) {
    switch (type) {
      case 0: numbers_[key].push_back(take<uint8_t>()); break;
      case 1: numbers_[key].push_back(take<int8_t>()); break;
      case 2: numbers_[key].push_back(take<uint16_t>()); break;
      case 3: numbers_[key].push_back(take<int16_t>()); break;
      case 4: numbers_[key].push_back(take<uint32_t>()); break;
      case 5: numbers_[key].push_back(take<int32_t>()); break;
      case 6: numbers_[key].push_back(take<float>()); break;
      case 7: numbers_[key].push_back(take<uint8_t>()); break;
      case 8: texts_[key].push_back(take_text()); break;
      case 9: {
        const auto element = take<uint32_t>();
        const auto count = take<uint64_t>();
        for (uint64_t i = 0; i < count; ++i) read_value(key, element);
        break;
      }
      case 10: numbers_[key].push_back(static_cast<double>(take<uint64_t>())); break;
      case 11: numbers_[key].push_back(static_cast<double>(take<int64_t>())); break;
      default: numbers_[key].push_back(take<double>());
    }
  }
  std::vector<std::string> texts(const std::string& key) const {
    const auto it = texts_.find("tokenizer.ggml." + key);
    return it == texts_.end() ? std::vector<std::string>() : it->second;
  }
  std::vector<double> numbers(const std::string& key) const {
    const auto it = numbers_.find("tokenizer.ggml." + key);
    return it == numbers_.end() ? std::vector<double>() : it->second;
  }
  std::string one(const std::string& key) const {
    const auto all = texts(key);
    return all.empty() ? "" : all[0];
  }

  std::shared_ptr<const MappedFile> file_;
  size_t at_ = 0;
  std::map<std::string, std::vector<std::string>> texts_;
  std::map<std::string, std::vector<double>> numbers_;
};

}  // namespace kaon
