#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kaon {

/// Reads `text`, which `where` names in errors. Throws InvalidConfig where it is not JSON, is nested so deep that
/// whoever walks it could not recurse, or says a key of an object twice, of which a reader would silently lose one.
/// Compiled once, for nlohmann::json and nlohmann::ordered_json: a parser in every file takes a minute of a build.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& where);

/// A document as text. Names in a model may hold any bytes: what is not UTF-8 becomes U+FFFD instead of an exception.
template <typename Json>
std::string json_text(const Json& document, int indent = -1);

}  // namespace kaon
