#pragma once
#include <string>
#include <utility>

#include "base/error.h"

namespace kaon {

/// A callback for nlohmann's parsers: throws CorruptFile where a document is nested deeper than any of ours would be.
/// Whoever walks it may then recurse.
inline auto bounded_depth(std::string where) {
  return [where = std::move(where)](int depth, auto, auto&) {
    constexpr int kMostLevels = 64;
    if (depth > kMostLevels) fail(ErrorCode::CorruptFile, where, "JSON nested deeper than {} levels", kMostLevels);
    return true;
  };
}

/// A document as text. Names in a model may hold any bytes: what is not UTF-8 becomes U+FFFD instead of an exception.
template <typename Json>
std::string json_text(const Json& document, int indent = -1) {
  return document.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kaon
