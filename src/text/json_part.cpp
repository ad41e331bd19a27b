#include "text/json_part.h"

#include <algorithm>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/text.h"

namespace kaon {

using nlohmann::json;

JsonPart::JsonPart(const json& value, std::string where) : value_(value), where_(std::move(where)) {
  if (!value_.is_object()) fail(ErrorCode::InvalidConfig, where_, "must be a JSON object");
}

bool JsonPart::has(const char* key) const {
  const auto it = value_.find(key);
  return it != value_.end() && !it->is_null();
}

void JsonPart::check_keys(const std::vector<std::string>& known) const {
  for (const auto& [key, value] : value_.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      fail(ErrorCode::Unsupported, where_, "the key \"{}\" is not known; known are {}", key, fmt::join(known, ", "));
    }
  }
}

void JsonPart::wrong(const std::string& key, const std::string& accepted) const {
  fail(ErrorCode::InvalidConfig, where_, "\"{}\" must be {}", key, accepted);
}

void JsonPart::unknown_type(const std::string& kind) const {
  fail(ErrorCode::Unsupported, where_, "the {} '{}' is not known", kind, type());
}

std::string JsonPart::text(const char* key) const {
  if (!has(key) || !value_[key].is_string()) wrong(key, "a string");
  return value_[key].get<std::string>();
}

std::string JsonPart::text(const char* key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

bool JsonPart::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!value_[key].is_boolean()) wrong(key, "true or false");
  return value_[key].get<bool>();
}

int64_t JsonPart::integer(const char* key, int64_t least, int64_t most) const {
  const bool fits = has(key) && value_[key].is_number_integer() &&
                    !(value_[key].is_number_unsigned() && value_[key].get<uint64_t>() >> 63 != 0);
  if (!fits || value_[key].get<int64_t>() < least || value_[key].get<int64_t>() > most) {
    wrong(key, fmt::format("an integer from {} to {}", least, most));
  }
  return value_[key].get<int64_t>();
}

JsonPart JsonPart::part(const char* key) const {
  if (!has(key)) wrong(key, "an object");
  return {value_[key], where_ + ", " + key};
}

const json& JsonPart::list(const char* key) const {
  if (!has(key) || !value_[key].is_array()) wrong(key, "a list");
  return value_[key];
}

std::vector<JsonPart> JsonPart::parts(const char* key) const {
  std::vector<JsonPart> parts;
  const json& all = list(key);
  for (size_t i = 0; i < all.size(); ++i) parts.emplace_back(all[i], fmt::format("{}, {}[{}]", where_, key, i));
  return parts;
}

json read_json(const std::string& path) {
  const auto file = MappedFile::open(path);
  const auto* text = reinterpret_cast<const char*>(file->bytes().data());
  try {
    return json::parse(text, text + file->bytes().size());
  } catch (const json::exception& error) {
    fail(ErrorCode::CorruptFile, path, "not valid JSON: {}", error.what());
  }
}

}  // namespace kaon
