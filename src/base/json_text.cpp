#include "base/json_text.h"

#include <set>
#include <vector>

#include "base/error.h"

namespace kaon {

template <typename Json>
Json parse_json(std::string_view text, const std::string& where) {
  constexpr int kMostLevels = 64;
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, auto event, const Json& parsed) {
    const auto at = static_cast<Event>(event);
    if (depth > kMostLevels) {
      fail(ErrorCode::InvalidConfig, where, "JSON nested deeper than {} levels", kMostLevels);
    }
    if (at == Event::object_start) keys.emplace_back();
    if (at == Event::object_end) keys.pop_back();
    if (at == Event::key && !keys.back().insert(parsed.template get<std::string>()).second) {
      fail(ErrorCode::InvalidConfig, where, "the key '{}' stands twice in one object",
           parsed.template get<std::string>());
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::InvalidConfig, where, "is not JSON: {}", error.what());
  }
}

template <typename Json>
std::string json_text(const Json& document, int indent) {
  return document.dump(indent, ' ', false, Json::error_handler_t::replace);
}

template nlohmann::json parse_json(std::string_view, const std::string&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&);
template std::string json_text(const nlohmann::json&, int);
template std::string json_text(const nlohmann::ordered_json&, int);

}  // namespace kaon
