#include "lm/config.h"

#include <cmath>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"

namespace kaon::lm {

Config Config::read(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  const auto bytes = file->bytes();
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

Config Config::parse(std::string_view text, const std::string& where) {
  nlohmann::json json = parse_json(text, where);
  if (!json.is_object()) fail(ErrorCode::CorruptFile, where, "no JSON object");
  return {std::move(json), where};
}

Config::Config(nlohmann::json json, std::string where) : json_(std::move(json)), where_(std::move(where)) {}

const nlohmann::json* Config::find(Keys keys) const {
  for (const std::string_view key : keys) {
    const auto it = json_.find(key);
    if (it != json_.end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

void Config::wrong(std::string_view key, const std::string& accepted) const {
  const auto it = json_.find(key);
  if (it == json_.end()) fail(ErrorCode::InvalidConfig, where_, "the key '{}' is missing: {}", key, accepted);
  const std::string shown = it->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 60);
  fail(ErrorCode::InvalidConfig, where_, "'{}' is {}: {}", key, shown, accepted);
}

int64_t Config::size(Keys keys, int64_t most) const {
  const nlohmann::json* value = find(keys);
  if (value == nullptr || !value->is_number_integer() || value->get<int64_t>() < 1 || value->get<int64_t>() > most) {
    wrong(*keys.begin(), fmt::format("an integer from 1 to {} is needed", most));
  }
  return value->get<int64_t>();
}

int64_t Config::size(Keys keys, int64_t most, int64_t otherwise) const {
  return has(keys) ? size(keys, most) : otherwise;
}

int64_t Config::integer(Keys keys, int64_t otherwise) const {
  const nlohmann::json* value = find(keys);
  if (value == nullptr) return otherwise;
  if (!value->is_number_integer()) wrong(*keys.begin(), "an integer is needed");
  return value->get<int64_t>();
}

double Config::number(Keys keys) const {
  const nlohmann::json* value = find(keys);
  if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>())) {
    wrong(*keys.begin(), "a number is needed");
  }
  return value->get<double>();
}

double Config::number(Keys keys, double otherwise) const { return has(keys) ? number(keys) : otherwise; }

bool Config::flag(Keys keys, bool otherwise) const {
  const nlohmann::json* value = find(keys);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong(*keys.begin(), "true or false is needed");
  return value->get<bool>();
}

std::string Config::text(Keys keys, const std::string& otherwise) const {
  const nlohmann::json* value = find(keys);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) wrong(*keys.begin(), "a text is needed");
  return value->get<std::string>();
}

std::vector<int64_t> Config::integers(Keys keys) const {
  const nlohmann::json* value = find(keys);
  std::vector<int64_t> list;
  const auto take = [&](const nlohmann::json& item) {
    if (!item.is_number_integer()) wrong(*keys.begin(), "an integer or a list of integers is needed");
    list.push_back(item.get<int64_t>());
  };
  if (value != nullptr && value->is_array()) {
    for (const nlohmann::json& item : *value) take(item);
  } else {
    take(value == nullptr ? nlohmann::json() : *value);
  }
  return list;
}

std::vector<double> Config::numbers(Keys keys) const {
  const nlohmann::json* value = find(keys);
  if (value == nullptr || !value->is_array()) wrong(*keys.begin(), "a list of numbers is needed");
  std::vector<double> list;
  for (const nlohmann::json& item : *value) {
    if (!item.is_number()) wrong(*keys.begin(), "a list of numbers is needed");
    list.push_back(item.get<double>());
  }
  return list;
}

std::vector<std::string> Config::texts(Keys keys) const {
  const nlohmann::json* value = find(keys);
  if (value == nullptr || !value->is_array()) wrong(*keys.begin(), "a list of texts is needed");
  std::vector<std::string> list;
  for (const nlohmann::json& item : *value) {
    if (!item.is_string()) wrong(*keys.begin(), "a list of texts is needed");
    list.push_back(item.get<std::string>());
  }
  return list;
}

Config Config::inside(Keys keys) const {
  const nlohmann::json* value = find(keys);
  if (value == nullptr) return {nlohmann::json::object(), where_};
  if (!value->is_object()) wrong(*keys.begin(), "an object is needed");
  return {*value, fmt::format("{}: {}", where_, *keys.begin())};
}

}  // namespace kaon::lm
