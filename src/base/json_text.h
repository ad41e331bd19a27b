#pragma once
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace kaon {

/// Reads `text`, which `where` names in errors. Throws InvalidConfig where it is not JSON, is nested so deep that
/// whoever walks it could not recurse, or says a key of an object twice, of which a reader would silently lose one.
template <typename Json = nlohmann::json>
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

/// A document as text. Names in a model may hold any bytes: what is not UTF-8 becomes U+FFFD instead of an exception.
template <typename Json>
std::string json_text(const Json& document, int indent = -1) {
  return document.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kaon
